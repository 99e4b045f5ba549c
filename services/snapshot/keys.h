#pragma once
// Names of states and pages: a keyed hash over identity, namespace and all tokens up to a position. Two
// stores never agree on a name (each has a random seed), so no client can prepare tokens that meet another's
// state.
//
// A token counts together with where it came from. Prompt tokens and tokens generated here pass through
// different code, which agrees to rounding and not to the bit (design.md, numbers contract), so the same text
// read and generated are two states. An engine whose two paths agree to the bit declares everything as read,
// and shares more.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "services/base/status.h"
#include "services/snapshot/hash128.h"
#include "services/snapshot/types.h"

namespace strata::snapshot {

using StoreSeed = std::array<std::byte, 16>;
StoreSeed random_seed();

// A token with its origin: the id in the lower 31 bits, bit 31 set if it was generated here.
using TokenWord = uint32_t;
inline constexpr TokenWord kGeneratedBit = TokenWord{1} << 31;

// kInvalidArgument: no tokens or more than kSnapshotTokensMax, a negative one, ranges that are empty, not
// ascending, or beyond the tokens.
Result<std::vector<TokenWord>> pack_tokens(std::span<const int32_t> tokens,
                                           std::span<const TokenRange> generated);
std::vector<int32_t> unpack_tokens(std::span<const TokenWord> words);
std::vector<TokenRange> unpack_generated(std::span<const TokenWord> words);

struct StateKeys {
  std::vector<Hash128> pages;  // of each full page, in order: (floor(n / P))
  SnapshotId id;               // of the state after all the tokens
};

class KeyMaker {
 public:
  KeyMaker(const StoreSeed& seed, const Hash128& identity_digest, uint32_t page_tokens);
  // One pass over the words.
  StateKeys keys(const Hash128& name_space, std::span<const TokenWord> words) const;

 private:
  // XXH3 takes at least 136 bytes; 192 is what its own functions use.
  std::array<std::byte, 192> secret_;
  Hash128 identity_;
  uint32_t page_tokens_;
};

}  // namespace strata::snapshot
