#pragma once
// Writes a model of random weights as fast as memory takes it, of any size: each tensor is a long walk
// through a pool of about a million random values of its type, from a place of its own. The pools' lengths
// are primes (in blocks), so that no row of a matrix begins where another did. What such a model says is
// nonsense, what it costs is what a real one of its shape costs.

#include <atomic>
#include <cstdint>
#include <string>

#include "services/base/status.h"
#include "services/synthetic/model_plan.h"

namespace strata::synthetic {

struct ModelFileOptions {
  std::string path;  // must not exist; removed again when writing fails
  uint64_t seed = 1;
  uint32_t threads = 1;
  const std::atomic<bool>* cancelled = nullptr;  // looked at all the time; set: kCancelled
};

// The file's size. kAlreadyExists; kResourceExhausted: too little room (in memory, if the folder is in
// memory).
Result<uint64_t> write_model_file(const ModelPlan& plan, const ModelFileOptions& options);

}  // namespace strata::synthetic
