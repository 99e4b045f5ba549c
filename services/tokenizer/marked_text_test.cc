#include "services/tokenizer/marked_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace strata::tokenizer {
namespace {

std::string shape(const MarkedText& text) {
  std::string out;
  for (const auto& run : text.runs()) {
    out += fmt::format("{}[{}]", run.origin == Origin::kTemplate ? 'T' : 'R',
                       text.text().substr(run.begin, run.end - run.begin));
  }
  return out;
}

TEST(MarkedTextTest, KeepsRunsMaximalAndCoversTheText) {
  MarkedText text("ab", Origin::kTemplate);
  text.append("cd", Origin::kTemplate);
  text.append("", Origin::kRequest);
  text.append("ef", Origin::kRequest);
  text.append("g", Origin::kTemplate);
  EXPECT_EQ(shape(text), "T[abcd]R[ef]T[g]");
  EXPECT_EQ(text.runs().front().begin, 0u);
  EXPECT_EQ(text.runs().back().end, text.size());
}

TEST(MarkedTextTest, SlicesThroughRuns) {
  MarkedText text("abc", Origin::kTemplate);
  text.append("def", Origin::kRequest);
  text.append("ghi", Origin::kTemplate);
  EXPECT_EQ(shape(text.slice(0, 9)), "T[abc]R[def]T[ghi]");
  EXPECT_EQ(shape(text.slice(2, 7)), "T[c]R[def]T[g]");
  EXPECT_EQ(shape(text.slice(3, 6)), "R[def]");
  EXPECT_EQ(shape(text.slice(4, 4)), "");
  EXPECT_EQ(shape(text.slice(9, 9)), "");
}

TEST(MarkedTextTest, AppendsItself) {
  MarkedText text("a", Origin::kTemplate);
  text.append("b", Origin::kRequest);
  text.append(text);
  EXPECT_EQ(shape(text), "T[a]R[b]T[a]R[b]");
}

TEST(MarkedTextTest, KnowsTheOriginOfEveryByte) {
  MarkedText text("ab", Origin::kRequest);
  text.append("c", Origin::kTemplate);
  EXPECT_EQ(text.origin_at(0), Origin::kRequest);
  EXPECT_EQ(text.origin_at(1), Origin::kRequest);
  EXPECT_EQ(text.origin_at(2), Origin::kTemplate);
}

}  // namespace
}  // namespace strata::tokenizer
