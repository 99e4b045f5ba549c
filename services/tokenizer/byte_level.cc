#include "services/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "services/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t kSpelledEnd = 0x100 + 68;

// Character -> byte, -1 for characters that spell none.
constexpr std::array<int16_t, kSpelledEnd> kByteOf = [] {
  std::array<int16_t, kSpelledEnd> table{};
  table.fill(-1);
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 0x100; ++byte) {
    table[stands_for_itself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return table;
}();

}  // namespace

void append_spelled_bytes(std::string& out, std::string_view spelling) {
  for (std::size_t at = 0; at < spelling.size();) {
    const Utf8Step step = utf8_step(spelling.substr(at));
    if (step.kind == Utf8Step::Kind::kCharacter && step.value < kSpelledEnd && kByteOf[step.value] >= 0) {
      out.push_back(static_cast<char>(kByteOf[step.value]));
    } else {
      out.append(spelling.substr(at, step.bytes));
    }
    at += step.bytes;
  }
}

}  // namespace strata::tokenizer
