#include "gateway/conversations/evicted_prefixes.h"

#include "gateway/conversations/prefix_hasher.h"

namespace strata::gateway {

void EvictedPrefixes::remember(uint32_t position, uint64_t hash) {
  if (!known_.emplace(position, hash).second) return;
  order_.emplace_back(position, hash);
  if (order_.size() <= limit_) return;
  known_.erase(order_.front());
  order_.pop_front();
}

uint32_t EvictedPrefixes::longest(std::span<const int32_t> tokens, uint64_t seed, uint32_t above,
                                  uint32_t up_to) const {
  PrefixHasher hasher(tokens, seed);
  uint32_t longest = 0, hashed = 0;
  uint64_t hash = 0;
  for (auto at = known_.lower_bound({above + 1, 0}); at != known_.end() && at->first <= up_to; ++at) {
    if (at->first != hashed) hash = hasher.at(hashed = at->first);
    if (at->second == hash) longest = at->first;
  }
  return longest;
}

}  // namespace strata::gateway
