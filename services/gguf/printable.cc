#include "services/gguf/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace strata::gguf {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

struct CodePoint {
  uint32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The code point that `text` (not empty) begins with; a byte that begins none is one invalid code point of
// one byte.
CodePoint decode_utf8(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t length = lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  uint32_t value = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, length, true};
}

// C0, DEL and C1: a terminal could act on them.
bool is_control(uint32_t value) { return value < 0x20 || (value >= 0x7F && value < 0xA0); }

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    out += point.valid ? text.substr(0, point.bytes) : kReplacement;
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string printable(std::string_view text, std::size_t chars_max) {
  std::string out;
  for (std::size_t chars = 0; !text.empty(); ++chars) {
    if (chars == chars_max) return out + "...";
    const CodePoint point = decode_utf8(text);
    if (!point.valid) {
      out += kReplacement;
    } else if (point.value == '\n') {
      out += "\\n";
    } else if (point.value == '\t') {
      out += "\\t";
    } else if (is_control(point.value)) {
      out += fmt::format("\\x{:02x}", point.value);
    } else {
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

}  // namespace strata::gguf
