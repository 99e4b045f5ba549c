#include "services/grammar/code_points.h"

#include <gtest/gtest.h>

#include <string>

#include "services/tokenizer/utf8.h"

namespace strata::grammar {
namespace {

TEST(CodePoints, KeepsRangesSortedAndJoinsThoseThatTouch) {
  CodePoints set;
  set.add('x', 'z');
  set.add('a', 'c');
  set.add('d');
  set.add('b', 'e');
  set.add('g', 'm');
  const std::vector<CodeRange> expected = {{'a', 'e'}, {'g', 'm'}, {'x', 'z'}};
  EXPECT_EQ(std::vector<CodeRange>(set.ranges().begin(), set.ranges().end()), expected);
}

TEST(CodePoints, HoldsNoSurrogates) {
  const CodePoints all = CodePoints::all();
  EXPECT_TRUE(all.contains(0xD7FF));
  EXPECT_FALSE(all.contains(0xD800));
  EXPECT_FALSE(all.contains(0xDFFF));
  EXPECT_TRUE(all.contains(0xE000));
  EXPECT_TRUE(all.complement().empty());
  EXPECT_EQ(CodePoints().complement(), all);
}

TEST(CodePoints, DifferenceAndIntersection) {
  const CodePoints letters({{'a', 'z'}});
  const CodePoints vowels({{'a', 'a'}, {'e', 'e'}, {'i', 'i'}, {0x1F600, 0x1F64F}});
  EXPECT_EQ(letters.intersection(vowels), CodePoints({{'a', 'a'}, {'e', 'e'}, {'i', 'i'}}));
  EXPECT_TRUE(letters.minus(vowels).contains('b'));
  EXPECT_FALSE(letters.minus(vowels).contains('e'));
  EXPECT_TRUE(vowels.minus(letters).contains(0x1F600));
}

// Every character of the range has exactly one of the sequences, and no character outside has one.
TEST(Utf8Sequences, CoverExactlyTheRange) {
  const std::vector<CodeRange> ranges = {
      {0, kSurrogatesFirst - 1}, {0x7E, 0x81},     {0x7FE, 0x802},    {0xFFFE, 0x10002}, {0x123, 0x4567},
      {0xE000, kLastCodePoint},  {0x20AC, 0x20AC}, {0x10400, 0x1F3FF}};
  for (const CodeRange& range : ranges) {
    std::vector<std::vector<ByteRange>> sequences;
    for_each_utf8_sequence(range,
                           [&](std::span<const ByteRange> s) { sequences.emplace_back(s.begin(), s.end()); });
    EXPECT_LE(sequences.size(), 16U);
    for (char32_t value = 0; value <= kLastCodePoint; value += value < 0x3000 || value > 0xF000 ? 1 : 7) {
      if (value >= kSurrogatesFirst && value <= kSurrogatesLast) continue;
      if (value > 0x10100 && value < 0x10FF00) value += 61;
      std::string text;
      tokenizer::utf8_append(text, value);
      int fitting = 0;
      for (const auto& sequence : sequences) {
        bool fits = sequence.size() == text.size();
        for (std::size_t i = 0; fits && i < text.size(); ++i) {
          fits = sequence[i].first <= static_cast<uint8_t>(text[i]) &&
                 static_cast<uint8_t>(text[i]) <= sequence[i].last;
        }
        fitting += fits ? 1 : 0;
      }
      const int expected = range.first <= value && value <= range.last ? 1 : 0;
      ASSERT_EQ(fitting, expected) << "U+" << std::hex << static_cast<uint32_t>(value) << " in " << std::hex
                                   << static_cast<uint32_t>(range.first);
    }
  }
}

}  // namespace
}  // namespace strata::grammar
