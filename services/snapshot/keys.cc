#include "services/snapshot/keys.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "services/base/check.h"

namespace strata::snapshot {
namespace {

static_assert(XXH3_SECRET_SIZE_MIN <= 192);

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

Hash128 digest_of(const XXH3_state_t& state) {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {.high = hash.high64, .low = hash.low64};
}

void add(XXH3_state_t& state, std::span<const std::byte> bytes) {
  CHECK(XXH3_128bits_update(&state, bytes.data(), bytes.size()) == XXH_OK);
}

}  // namespace

StoreSeed random_seed() {
  std::random_device device;
  StoreSeed seed;
  for (std::size_t i = 0; i < seed.size(); i += sizeof(uint32_t)) {
    const uint32_t bits = device();
    std::memcpy(seed.data() + i, &bits, sizeof bits);
  }
  return seed;
}

Result<std::vector<TokenWord>> pack_tokens(std::span<const int32_t> tokens,
                                           std::span<const TokenRange> generated) {
  if (tokens.empty() || tokens.size() > kSnapshotTokensMax) {
    return fail(Code::kInvalidArgument, "a snapshot of {} tokens: 1 to {} are possible", tokens.size(),
                kSnapshotTokensMax);
  }
  std::vector<TokenWord> words(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0) return fail(Code::kInvalidArgument, "token {} is {}", i, tokens[i]);
    words[i] = static_cast<TokenWord>(tokens[i]);
  }
  uint32_t end = 0;
  for (const TokenRange& range : generated) {
    if (range.begin < end || range.end <= range.begin || range.end > tokens.size()) {
      return fail(Code::kInvalidArgument,
                  "generated tokens {} to {}: not after {}, or not within the {} tokens", range.begin,
                  range.end, end, tokens.size());
    }
    for (uint32_t i = range.begin; i < range.end; ++i) words[i] |= kGeneratedBit;
    end = range.end;
  }
  return words;
}

std::vector<int32_t> unpack_tokens(std::span<const TokenWord> words) {
  std::vector<int32_t> tokens(words.size());
  std::transform(words.begin(), words.end(), tokens.begin(),
                 [](TokenWord word) { return static_cast<int32_t>(word & ~kGeneratedBit); });
  return tokens;
}

std::vector<TokenRange> unpack_generated(std::span<const TokenWord> words) {
  std::vector<TokenRange> ranges;
  for (uint32_t i = 0; i < words.size(); ++i) {
    if ((words[i] & kGeneratedBit) == 0) continue;
    if (!ranges.empty() && ranges.back().end == i) {
      ++ranges.back().end;
    } else {
      ranges.push_back({.begin = i, .end = i + 1});
    }
  }
  return ranges;
}

KeyMaker::KeyMaker(const StoreSeed& seed, const Hash128& identity_digest, uint32_t page_tokens)
    : identity_(identity_digest), page_tokens_(page_tokens) {
  CHECK(page_tokens > 0);
  for (uint64_t at = 0; at < secret_.size(); at += sizeof(XXH128_hash_t)) {
    const XXH128_hash_t bits = XXH3_128bits_withSeed(seed.data(), seed.size(), at);
    std::memcpy(secret_.data() + at, &bits, sizeof bits);
  }
}

StateKeys KeyMaker::keys(const Hash128& name_space, std::span<const TokenWord> words) const {
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  CHECK(state != nullptr &&
        XXH3_128bits_reset_withSecret(state.get(), secret_.data(), secret_.size()) == XXH_OK);
  add(*state, std::as_bytes(std::span(&identity_, 1)));
  add(*state, std::as_bytes(std::span(&name_space, 1)));
  StateKeys keys;
  keys.pages.reserve(words.size() / page_tokens_);
  while (words.size() >= page_tokens_) {
    add(*state, std::as_bytes(words.first(page_tokens_)));
    keys.pages.push_back(digest_of(*state));
    words = words.subspan(page_tokens_);
  }
  add(*state, std::as_bytes(words));
  // A state that ends with a page must not be called like the page.
  constexpr TokenWord kEndMark = UINT32_MAX;
  add(*state, std::as_bytes(std::span(&kEndMark, 1)));
  keys.id = digest_of(*state);
  return keys;
}

}  // namespace strata::snapshot
