#include "gateway/api/utf8.h"

#include <algorithm>
#include <cstdint>

namespace strata::gateway {

namespace {

struct Sequence {
  std::size_t bytes = 1;
  bool valid = false;
};

// The character at the begin of `text`, or the wrong piece there (Unicode 15, table 3-7).
Sequence next_sequence(std::string_view text) {
  auto byte = [&text](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {.bytes = 1, .valid = true};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return {};
  uint8_t second_min = 0x80, second_max = 0xbf;
  if (lead == 0xe0) second_min = 0xa0;  // overlong
  if (lead == 0xed) second_max = 0x9f;  // surrogates
  if (lead == 0xf0) second_min = 0x90;  // overlong
  if (lead == 0xf4) second_max = 0x8f;  // beyond U+10FFFF
  for (std::size_t i = 1; i < length; ++i) {
    const uint8_t low = i == 1 ? second_min : 0x80, high = i == 1 ? second_max : 0xbf;
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {.bytes = i};
  }
  return {.bytes = length, .valid = true};
}

}  // namespace

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    Sequence sequence = next_sequence(bytes);
    if (sequence.valid) {
      out += bytes.substr(0, sequence.bytes);
    } else {
      out += "\xef\xbf\xbd";
    }
    bytes.remove_prefix(sequence.bytes);
  }
  return out;
}

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace strata::gateway
