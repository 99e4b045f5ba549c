#pragma once
// The two hashes of the snapshot store: 128 bits name things, 64 bits check bytes. Both are XXH3, which
// notices damage and never repeats by accident; it withstands nobody who chooses the input, so what names
// content of clients is keyed (keys.h).

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace strata::snapshot {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  bool is_zero() const { return high == 0 && low == 0; }  // zero stands for "none"
  std::string text() const;  // 32 lower-case hexadecimal digits, the upper half first
  // kInvalidArgument: not 32 lower-case hexadecimal digits.
  static Result<Hash128> parse(std::string_view text);
  // As messages carry it: 16 bytes, in the order of text()'s digits.
  std::string bytes() const;
  // kInvalidArgument: not 16 bytes.
  static Result<Hash128> from_bytes(std::string_view bytes);
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

struct Hash128Hasher {
  std::size_t operator()(const Hash128& hash) const { return static_cast<std::size_t>(hash.low); }
};

Hash128 hash128(std::span<const std::byte> bytes);      // XXH3, 128 bits, seed 0
uint64_t checksum64(std::span<const std::byte> bytes);  // XXH3, 64 bits, seed 0

}  // namespace strata::snapshot
