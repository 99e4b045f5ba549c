#pragma once
// The measuring client: completions of given token ids, streamed, with the time of each piece.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/cli/http_client.h"

namespace strata::cli {

struct BenchRequest {
  std::vector<int32_t> prompt;
  uint32_t max_tokens = 1;
  uint64_t seed = 1;
  std::vector<int32_t> never;  // tokens that must not come: the ends of answers
  std::string grammar = {};    // GBNF that the answer is held to; empty: none
};

struct BenchAnswer {
  uint64_t prompt_tokens = 0;
  uint64_t answer_tokens = 0;
  double asked = 0, first = 0, last = 0;  // seconds on one clock: request, first and last piece
  std::vector<double> pauses;             // seconds between pieces

  double first_token_seconds() const { return first - asked; }
};

// kUnavailable: what the server says against it; kCancelled.
Result<BenchAnswer> complete(const Url& url, const BenchRequest& request, const std::atomic<bool>* cancelled);
// All at the same time, one thread each; the first error if there is one.
Result<std::vector<BenchAnswer>> complete_all(const Url& url, const std::vector<BenchRequest>& requests,
                                              const std::atomic<bool>* cancelled);

}  // namespace strata::cli
