#pragma once
// The code books expanded at compile time to what kernels load: one 64-bit word for an entry of 8 values, one
// 32-bit word for 4, value 0 in the lowest byte. From any entry on, 16 bytes may be read. Data only, so all
// kernel variants share it.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "services/quant/code_books.h"

namespace strata::quant {

static_assert(std::endian::native == std::endian::little, "an entry is loaded as bytes");

// value_of(level number) for each of the values of Word.
template <class Word, std::size_t kCount, class ValueOf>
consteval auto expand_codes(const uint16_t (&codes)[kCount], ValueOf value_of) {
  constexpr int kValues = sizeof(Word);
  constexpr int kLevelBits = 16 / kValues;
  std::array<Word, kCount + 16 / sizeof(Word) - 1> entries{};
  for (std::size_t e = 0; e < kCount; ++e) {
    for (int j = 0; j < kValues; ++j) {
      const auto level = static_cast<unsigned>(codes[e] >> (kLevelBits * j)) & ((1u << kLevelBits) - 1);
      entries[e] |= static_cast<Word>(value_of(level)) << (8 * j);
    }
  }
  return entries;
}

inline constexpr auto kIq2XxsEntries =
    expand_codes<uint64_t>(kIq2XxsCodes, [](unsigned level) { return kIq2Levels[level]; });
inline constexpr auto kIq2XsEntries =
    expand_codes<uint64_t>(kIq2XsCodes, [](unsigned level) { return kIq2Levels[level]; });
inline constexpr auto kIq2SEntries =
    expand_codes<uint64_t>(kIq2SCodes, [](unsigned level) { return kIq2Levels[level]; });
inline constexpr auto kIq3XxsEntries =
    expand_codes<uint32_t>(kIq3XxsCodes, [](unsigned level) { return kIq3XxsLevels[level]; });
inline constexpr auto kIq3SEntries =
    expand_codes<uint32_t>(kIq3SCodes, [](unsigned level) { return 2 * level + 1; });
// 8 (g + 1), so that it is unsigned: the weight is this, minus 9, plus 2 where the shift is upwards.
inline constexpr auto kIq1Entries =
    expand_codes<uint64_t>(kIq1Codes, [](unsigned level) { return 8 * level; });

}  // namespace strata::quant
