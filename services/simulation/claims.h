#pragma once
// For tests: hit rates in stretches of a replay.

#include <gtest/gtest.h>

#include <numeric>
#include <span>

#include "services/simulation/replay.h"

namespace strata::simulation {

inline double rate_of(const residency::RoutingTrace& trace, std::span<const uint32_t> hits_of_tokens) {
  const double uses = static_cast<double>(hits_of_tokens.size()) * trace.layers * trace.used;
  return std::accumulate(hits_of_tokens.begin(), hits_of_tokens.end(), 0.0) / uses;
}

// Generated tokens until the hit rate of the last kStretchTokens reaches `rate`; all of them if it never
// does.
inline constexpr std::size_t kStretchTokens = 16;
inline std::size_t tokens_until(const residency::RoutingTrace& trace,
                                std::span<const uint32_t> hits_of_tokens, double rate) {
  for (std::size_t end = kStretchTokens; end <= hits_of_tokens.size(); ++end) {
    if (rate_of(trace, hits_of_tokens.subspan(end - kStretchTokens, kStretchTokens)) >= rate) return end;
  }
  return hits_of_tokens.size();
}

}  // namespace strata::simulation
