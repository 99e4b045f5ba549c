#include "gpu-worker/expert_groups.h"

#include <algorithm>

#include "services/base/check.h"

namespace strata::gpu_worker {

ExpertGroups::ExpertGroups(uint32_t pairs_max, uint32_t experts_max)
    : pairs_(pairs_max), tokens_(pairs_max), next_(experts_max) {
  groups_.reserve(experts_max);
}

// Counting sort; stable, so the tokens of an expert stay ascending.
void ExpertGroups::build(const model::RoutedLayer& routed) {
  pair_count_ = routed.tokens * routed.top_k;
  CHECK(pair_count_ <= pairs_.size(), "{} tokens of {} experts, room for {} pairs", routed.tokens,
        routed.top_k, pairs_.size());
  std::ranges::fill(next_, 0);
  for (uint32_t pair = 0; pair < pair_count_; ++pair) {
    CHECK(routed.experts[pair] < next_.size(), "expert {} of {}", routed.experts[pair], next_.size());
    ++next_[routed.experts[pair]];
  }
  groups_.clear();
  uint32_t begin = 0;
  for (uint32_t expert = 0; expert < next_.size(); ++expert) {
    const uint32_t count = next_[expert];
    if (count == 0) continue;
    groups_.push_back({.expert = static_cast<uint16_t>(expert), .begin = begin, .end = begin + count});
    next_[expert] = begin;
    begin += count;
  }
  for (uint32_t pair = 0; pair < pair_count_; ++pair) {
    const uint32_t place = next_[routed.experts[pair]]++;
    pairs_[place] = pair;
    tokens_[place] = pair / routed.top_k;
  }
}

}  // namespace strata::gpu_worker
