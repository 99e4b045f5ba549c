#include "services/tokenizer/utf8.h"

#include "services/base/check.h"

namespace strata::tokenizer {
namespace {

// What a lead byte allows: how many bytes follow, and the range of the first of them. The narrowed ranges
// exclude overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  uint8_t following = 0;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {.following = 1};
  if (byte == 0xE0) return {.following = 2, .low = 0xA0};
  if (byte == 0xED) return {.following = 2, .high = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {.following = 2};
  if (byte == 0xF0) return {.following = 3, .low = 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {.following = 3};
  if (byte == 0xF4) return {.following = 3, .high = 0x8F};
  return {};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  CHECK(!text.empty());
  const auto byte_at = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte_at(0);
  if (first < 0x80) return {Utf8Step::Kind::kCharacter, 1, first};
  const Lead lead = lead_of(first);
  if (lead.following == 0) return {Utf8Step::Kind::kIllFormed, 1, 0};
  char32_t value = first & (0x3Fu >> lead.following);
  for (uint8_t i = 1; i <= lead.following; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::kIncomplete, i, 0};
    const uint8_t byte = byte_at(i);
    const bool continues = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!continues) return {Utf8Step::Kind::kIllFormed, i, 0};
    value = (value << 6) | (byte & 0x3Fu);
  }
  return {Utf8Step::Kind::kCharacter, static_cast<uint8_t>(lead.following + 1), value};
}

std::size_t utf8_valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) break;
    at += step.bytes;
  }
  return at;
}

void utf8_append(std::string& out, char32_t value) {
  CHECK(value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF), "U+{:04X}", static_cast<uint32_t>(value));
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | ((value >> shift) & 0x3F))); };
  if (value < 0x80) {
    out.push_back(static_cast<char>(value));
  } else if (value < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (value >> 6)));
    tail(0);
  } else if (value < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (value >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | (value >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace strata::tokenizer
