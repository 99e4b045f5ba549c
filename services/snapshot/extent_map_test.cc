#include "services/snapshot/extent_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace strata::snapshot {
namespace {

TEST(ExtentMap, TakesTheSmallestHoleThatIsLongEnough) {
  ExtentMap map(10, 100);
  const uint64_t a = map.take(20).value();
  const uint64_t b = map.take(5).value();
  const uint64_t c = map.take(8).value();
  map.take(60).value();
  EXPECT_EQ(a, 10u);
  map.give(a, 20);
  map.give(c, 8);
  EXPECT_EQ(map.take(6).value(), 103u) << "the rest of 7 at the end fits better than 8 and 20";
  EXPECT_EQ(map.take(8).value(), c);
  EXPECT_EQ(map.take(9).value(), a);
  map.give(b, 5);
  EXPECT_EQ(map.longest_free(), 16u) << "joined with what is left of the first";
}

TEST(ExtentMap, EmptyAndFull) {
  ExtentMap none(1, 0);
  EXPECT_FALSE(none.take(1));
  ExtentMap map(1, 4);
  EXPECT_FALSE(map.take(5));
  EXPECT_EQ(map.take(4).value(), 1u);
  EXPECT_FALSE(map.take(1));
  map.give(1, 4);
  EXPECT_EQ(map.free_units(), 4u);
}

TEST(ExtentMapDeathTest, GivingBackTwiceIsABug) {
  ExtentMap map(0, 10);
  map.take(4).value();
  map.give(0, 4);
  EXPECT_DEATH(map.give(0, 4), "free already");
  EXPECT_DEATH(map.give(8, 4), "12|at 8");
}

// Random operations beside a plain list of what is taken.
TEST(ExtentMap, NeverHandsOutAUnitTwice) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    constexpr uint64_t kUnits = 300;
    ExtentMap map(5, kUnits);
    std::map<uint64_t, uint64_t> taken;
    uint64_t taken_units = 0;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0) {
        const uint64_t units = 1 + random() % 40;
        const uint64_t longest = map.longest_free();
        const auto first = map.take(units);
        ASSERT_EQ(first.has_value(), units <= longest);
        if (!first) continue;
        ASSERT_GE(*first, 5u);
        ASSERT_LE(*first + units, 5 + kUnits);
        const auto after = taken.lower_bound(*first);
        ASSERT_TRUE(after == taken.end() || *first + units <= after->first);
        ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second <= *first);
        taken.emplace(*first, units);
        taken_units += units;
      } else if (!taken.empty()) {
        const auto piece = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
        map.give(piece->first, piece->second);
        taken_units -= piece->second;
        taken.erase(piece);
      }
      ASSERT_EQ(map.free_units(), kUnits - taken_units);
    }
    for (const auto& [first, units] : taken) map.give(first, units);
    EXPECT_EQ(map.longest_free(), kUnits) << "everything joins again";
  }
}

}  // namespace
}  // namespace strata::snapshot
