#pragma once
// The measurements of `strata bench` on a cluster that is ready.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/cli/bench_client.h"
#include "services/cli/bench_report.h"

namespace strata::cli {

struct BenchMeasureOptions {
  Url url;
  std::string run_dir;
  std::vector<uint32_t> clients;   // of decoding, one measurement each
  bool constrained = false;        // each of them also with answers that are held to a grammar
  std::vector<uint32_t> prompts;   // tokens, one measurement each
  uint32_t tokens = 200;           // per answer and client
  uint32_t warm_up_tokens = 4000;  // at most
  std::vector<int32_t> never;      // BenchRequest::never
  // A prompt of so many tokens, another one for each number.
  std::function<std::vector<int32_t>(uint32_t tokens, uint64_t number)> prompt;
  const std::atomic<bool>* cancelled = nullptr;
};

// Fills everything of the report but what its subject says of the model.
Status measure(const BenchMeasureOptions& options, BenchReport& report);

}  // namespace strata::cli
