#include "gateway/conversations/prefix_hasher.h"

#include <xxhash.h>

#include "services/base/check.h"

namespace strata::gateway {

namespace {

constexpr uint32_t kBlockTokens = 64;

uint64_t hash_of(std::span<const int32_t> tokens, uint64_t seed) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), seed);
}

}  // namespace

uint64_t PrefixHasher::at(uint32_t position) {
  CHECK(position >= done_ && position <= tokens_.size(), "position {} after {} of {}", position, done_,
        tokens_.size());
  for (; position - done_ >= kBlockTokens; done_ += kBlockTokens) {
    chain_ = hash_of(tokens_.subspan(done_, kBlockTokens), chain_);
  }
  return hash_of(tokens_.subspan(done_, position - done_), chain_);
}

}  // namespace strata::gateway
