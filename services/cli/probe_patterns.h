#pragma once
// How people and programs come back to a model, as sequences of requests whose time to first token is taken.
// Nothing here knows HTTP; a request is answered by a function.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/cli/probe_client.h"
#include "services/cli/probe_filler.h"

namespace strata::cli {

inline constexpr std::array<std::string_view, 5> kProbePatterns = {"alternate", "loop", "shared", "edit",
                                                                   "compact"};

struct ProbePlan {
  uint32_t conversations = 4;
  uint32_t tokens = 1500;  // of a history or a shared system prompt, about
  uint32_t rounds = 3;     // how often a conversation is come back to, edited, compacted, or a root shared
  uint32_t steps = 20;     // of an agent loop
  uint32_t answer_tokens = 24;  // at most, each
  uint64_t seed = 1;            // of the texts
  uint64_t context_tokens = 0;  // of the server; 0: unknown, nothing is refused
};

struct ProbeSample {
  double seconds = 0;  // to the first token
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
};

struct ProbeSeries {
  std::string name;  // cold, warm, switched, repeated, step, shared, edited, compacted
  std::vector<ProbeSample> samples;
};

struct ProbeResult {
  std::string pattern;
  std::vector<ProbeSeries> series;  // the cold one first
  // Requests that were sent twice with others in between, and how many of them had the same greedy answer.
  uint32_t compared = 0, identical = 0;
};

// Of the longest prompt and its answer, about.
uint64_t probe_tokens_needed(std::string_view pattern, const ProbePlan& plan, const TokenRate& rate);

// The pattern is one of kProbePatterns. kOutOfRange: it does not fit the context, and what to lower; else
// what `ask` fails with.
Result<ProbeResult> run_probe_pattern(std::string_view pattern, const ProbePlan& plan, const TokenRate& rate,
                                      const ProbeAsk& ask);

}  // namespace strata::cli
