#pragma once
// Remembers that states were there which are gone now, so that an answer can say "evicted" instead of "new".
// Bounded: position and hash of each (16 bytes and their places in two containers), the oldest forgotten
// first. A wrong match needs two equal 64-bit hashes and costs a wrong word in a report, nothing else.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <utility>

namespace strata::gateway {

class EvictedPrefixes {
 public:
  explicit EvictedPrefixes(std::size_t limit) : limit_(limit) {}

  // hash: PrefixHasher's of the tokens up to `position`, seeded with what else has to be equal.
  void remember(uint32_t position, uint64_t hash);
  // The largest position in (above, up_to] whose prefix of `tokens` was remembered, or 0. up_to must not
  // exceed the tokens. Costs a pass over the tokens when something with such a position is remembered.
  uint32_t longest(std::span<const int32_t> tokens, uint64_t seed, uint32_t above, uint32_t up_to) const;

  std::size_t size() const { return known_.size(); }

 private:
  using Prefix = std::pair<uint32_t, uint64_t>;  // position, hash

  std::size_t limit_;
  std::set<Prefix> known_;
  std::deque<Prefix> order_;  // the same, the oldest in front
};

}  // namespace strata::gateway
