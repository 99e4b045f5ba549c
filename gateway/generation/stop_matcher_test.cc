#include "gateway/generation/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace strata::gateway {
namespace {

struct Outcome {
  std::string text;
  bool matched = false;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.text += matcher.push(piece);
  outcome.text += matcher.flush();
  outcome.matched = matcher.matched();
  return outcome;
}

// The definition, without cleverness: the shortest beginning of the text that ends with a stop string.
Outcome reference(const std::vector<std::string>& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t cut = std::string::npos;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) cut = std::min(cut, end - stop.size());
    }
    if (cut != std::string::npos) return {text.substr(0, cut), true};
  }
  return {text, false};
}

// Every way of cutting the text into pieces: bit i of `cuts` is a cut behind byte i.
std::vector<std::string> cut(const std::string& text, uint32_t cuts) {
  std::vector<std::string> pieces(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    pieces.back() += text[i];
    if ((cuts >> i) & 1) pieces.emplace_back();
  }
  return pieces;
}

TEST(StopMatcherTest, GivesTheSameTextForEveryWayOfCuttingItIntoPieces) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"END"}, "the END now"},    {{"abcd", "bc"}, "xabcdy"},  {{"aab"}, "aaaab"},
      {{"\n\n"}, "a\n\nb\n"},      {{"ab", "abc"}, "zzabcab"},  {{"xyz", "yzx"}, "xyxyzx"},
      {{"STOP", "ST"}, "a STO P"}, {{"bca", "abc"}, "ababcab"},
  };
  for (const auto& [stops, text] : cases) {
    const Outcome expected = reference(stops, text);
    for (uint32_t cuts = 0; cuts < (1u << text.size()); ++cuts) {
      ASSERT_EQ(run(stops, cut(text, cuts)), expected) << "text " << text << ", cuts " << cuts;
    }
  }
}

TEST(StopMatcherTest, AgreesWithTheDefinitionOnRandomTexts) {
  std::mt19937 random(20240917);
  auto word = [&random](std::size_t size) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t i = 0; i < 1 + random() % 4; ++i) stops.push_back(word(2 + random() % 5));
    const std::string text = word(random() % 24);
    ASSERT_EQ(run(stops, cut(text, random())), reference(stops, text))
        << "text " << text << ", first stop " << stops[0];
  }
}

TEST(StopMatcherTest, HoldsBackOnlyWhatCouldStillBecomeAStopString) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.push("a </e"), "a ");
  EXPECT_EQ(matcher.held_bytes(), 3u);
  EXPECT_EQ(matcher.push("l"), "</el");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcherTest, SaysNothingMoreAfterAMatch) {
  StopMatcher matcher({"."});
  EXPECT_EQ(matcher.push("One. Two."), "One");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push(" Three."), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcherTest, NeverCutsACharacterInTwo) {
  // Both begin with the same byte: it must not be shown before it is clear which of the two it is.
  StopMatcher matcher({"é!"});
  EXPECT_EQ(matcher.push("è"), "è");
  EXPECT_EQ(matcher.push("é"), "");
  EXPECT_EQ(matcher.push("?"), "é?");
}

}  // namespace
}  // namespace strata::gateway
