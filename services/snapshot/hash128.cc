#include "services/snapshot/hash128.h"

#include <xxhash.h>

#include <algorithm>

namespace strata::snapshot {
namespace {

int digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

std::string Hash128::text() const { return fmt::format("{:016x}{:016x}", high, low); }

Result<Hash128> Hash128::parse(std::string_view text) {
  if (text.size() != 32 || std::any_of(text.begin(), text.end(), [](char c) { return digit_value(c) < 0; })) {
    return fail(Code::kInvalidArgument, "\"{}\" is no id: expected 32 lower-case hexadecimal digits",
                text.substr(0, 64));
  }
  Hash128 hash;
  for (char digit : text) {
    hash.high = hash.high << 4 | hash.low >> 60;
    hash.low = hash.low << 4 | static_cast<uint64_t>(digit_value(digit));
  }
  return hash;
}

std::string Hash128::bytes() const {
  std::string out;
  for (const uint64_t half : {high, low}) {
    for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(half >> shift));
  }
  return out;
}

Result<Hash128> Hash128::from_bytes(std::string_view bytes) {
  if (bytes.size() != 16) return fail(Code::kInvalidArgument, "an id has 16 bytes, got {}", bytes.size());
  Hash128 hash;
  for (const char byte : bytes) {
    hash.high = hash.high << 8 | hash.low >> 56;
    hash.low = hash.low << 8 | static_cast<uint8_t>(byte);
  }
  return hash;
}

Hash128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

uint64_t checksum64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace strata::snapshot
