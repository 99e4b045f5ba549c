// Against the numbers themselves: what is written and what its value is, for every bound near the turning
// points.
#include "services/grammar/number_range.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

std::shared_ptr<const Grammar> integers(std::optional<int64_t> min, std::optional<int64_t> max) {
  Rules rules;
  const RuleId root = rules.add_rule("root");
  rules.define(root, add_integer_range(rules, min, max));
  rules.set_root(root);
  return compiled(rules);
}

std::shared_ptr<const Grammar> numbers(std::optional<NumberBound> min, std::optional<NumberBound> max) {
  Rules rules;
  const RuleId root = rules.add_rule("root");
  rules.define(root, add_number_range(rules, min, max));
  rules.set_root(root);
  return compiled(rules);
}

TEST(IntegerRange, HoldsExactlyTheIntegersBetweenItsBounds) {
  const int64_t bounds[] = {-1001, -1000, -999, -110, -100, -99, -12, -10, -9,  -1,  0,   1,
                            5,     9,     10,   11,   19,   20,  99,  100, 101, 987, 1000};
  for (const int64_t low : bounds) {
    for (const int64_t high : bounds) {
      if (low > high) continue;
      const auto grammar = integers(low, high);
      for (int64_t value = -1105; value <= 1105; value += 1 + std::abs(value) / 300) {
        ASSERT_EQ(matches(grammar, std::to_string(value)), low <= value && value <= high)
            << value << " in " << low << ".." << high;
      }
      for (const std::string_view text : {"", "-", "+1", "01", "-0", "-01", "1.0", "1e1", " 1"}) {
        ASSERT_FALSE(matches(grammar, text)) << text << " in " << low << ".." << high;
      }
    }
  }
}

TEST(IntegerRange, GoesToTheEndsOfInt64) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  const auto all = integers(kMin, kMax);
  EXPECT_TRUE(matches(all, "-9223372036854775808"));
  EXPECT_TRUE(matches(all, "9223372036854775807"));
  EXPECT_FALSE(matches(all, "9223372036854775808"));
  EXPECT_FALSE(matches(all, "-9223372036854775809"));
  EXPECT_TRUE(matches(integers(kIntegerDefaultMax + 5, std::nullopt), "9223372036854775807"));
  EXPECT_TRUE(matches(integers(std::nullopt, -kIntegerDefaultMax - 5), "-9223372036854775808"));
  EXPECT_TRUE(matches(integers(7, std::nullopt), "9999999999999999"));
  EXPECT_FALSE(matches(integers(7, std::nullopt), "10000000000000000"));
  EXPECT_FALSE(matches(integers(7, std::nullopt), "6"));
  EXPECT_TRUE(matches(integers(std::nullopt, std::nullopt), "-9999999999999999"));
}

TEST(NumberRange, HoldsDecimalsBetweenWholeBounds) {
  const char* texts[] = {"-12",    "-11.5", "-11",  "-10.01", "-10",    "-9.99", "-1.5", "-1", "-0.5",
                         "-0.001", "0",     "0.0",  "0.000",  "0.01",   "0.5",   "0.99", "1",  "1.0",
                         "1.01",   "5",     "9.99", "10",     "10.000", "10.01", "11.5", "100"};
  const int64_t bounds[] = {-11, -10, -1, 0, 1, 2, 10, 11};
  for (const int64_t low : bounds) {
    for (const int64_t high : bounds) {
      for (const bool low_exclusive : {false, true}) {
        for (const bool high_exclusive : {false, true}) {
          if (low > high || (low == high && (low_exclusive || high_exclusive))) continue;
          const auto grammar = numbers(NumberBound{low, low_exclusive}, NumberBound{high, high_exclusive});
          for (const char* text : texts) {
            const double value = std::atof(text);
            const auto a = static_cast<double>(low), b = static_cast<double>(high);
            const bool expected =
                (low_exclusive ? a < value : a <= value) && (high_exclusive ? value < b : value <= b);
            ASSERT_EQ(matches(grammar, text), expected)
                << text << " in " << low << ".." << high << " exclusive: " << low_exclusive << high_exclusive;
          }
        }
      }
    }
  }
}

TEST(NumberRange, ReadsNoOtherForms) {
  const auto grammar = numbers(NumberBound{-5}, std::nullopt);
  for (const std::string_view text :
       {"", "-", ".", "1.", ".5", "-.5", "01", "1e1", "-0", "-0.0", "+1", "-6", "-5.1"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  EXPECT_TRUE(matches(grammar, "9999999999999998.9"));
  EXPECT_TRUE(matches(numbers(std::nullopt, NumberBound{3}), "-9999999999999998.9"));
}

}  // namespace
}  // namespace strata::grammar
