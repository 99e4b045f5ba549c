#pragma once
// The mapped file's expert tensors, page-locked for copies at full speed. Where the system refuses (memory
// that may not be locked, too little of it), copies still work, slower, and the log says why.

#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "services/model/model_weights.h"

namespace strata::gpu_worker::cuda {

// Locking takes seconds for a large model, so a thread does it while the device already works. Nothing of the
// file that is copied meanwhile lies half within memory that gets locked: pieces are whole tensors of
// experts.
class RegisteredExperts {
 public:
  explicit RegisteredExperts(const model::ModelWeights& weights);  // which outlive this
  RegisteredExperts(const RegisteredExperts&) = delete;
  RegisteredExperts& operator=(const RegisteredExperts&) = delete;
  ~RegisteredExperts();

 private:
  void run(const model::ModelWeights& weights);
  void read_in(std::span<const std::byte> range) const;

  std::atomic<bool> stopping_ = false;
  std::vector<std::byte*> ranges_;  // the thread's
  std::thread thread_;
};

// The ranges of memory, whole pages, that hold these pieces; pieces that share a page share a range.
std::vector<std::span<const std::byte>> page_ranges(std::vector<std::span<const std::byte>> pieces);

}  // namespace strata::gpu_worker::cuda
