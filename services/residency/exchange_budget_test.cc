#include "services/residency/exchange_budget.h"

#include <gtest/gtest.h>

namespace strata::residency {
namespace {

constexpr uint64_t kExpertBytes = 1000;
constexpr uint32_t kMany = 1'000'000;

// Takes all that may be taken.
uint32_t take_all(ExchangeBudget& budget) {
  const uint32_t count = budget.available(kMany);
  budget.spend(count, count * kExpertBytes);
  return count;
}

TEST(ExchangeBudgetTest, BeginsWithNothing) {
  EXPECT_EQ(ExchangeBudget({.exchanges_per_window = 4}, kExpertBytes).available(kMany), 0U);
}

TEST(ExchangeBudgetTest, WithoutLimitsOnlyTheBoundCounts) {
  ExchangeBudget budget({}, kExpertBytes);
  for (int window = 0; window < 3; ++window) {
    budget.passed(1, 0.001);
    EXPECT_EQ(take_all(budget), kMany);
  }
}

TEST(ExchangeBudgetTest, GivesSoManyPerWindowAndSavesNothingUp) {
  ExchangeBudget budget({.exchanges_per_window = 4}, kExpertBytes);
  for (int window = 0; window < 100; ++window) budget.passed(1, 0.01);
  EXPECT_EQ(take_all(budget), 4U) << "a hundred quiet windows are no burst";
  EXPECT_EQ(budget.available(kMany), 0U);
  budget.passed(3, 0.03);
  EXPECT_EQ(budget.available(5), 5U);
  EXPECT_EQ(take_all(budget), 12U) << "a look over three windows";
}

TEST(ExchangeBudgetTest, ThirdsOfAnExchangeAreOneInThreeWindows) {
  for (const double per_window : {1.0 / 3, 1.0 / 12, 8.0 / 12, 2.5, 0.01}) {
    ExchangeBudget budget({.exchanges_per_window = per_window}, kExpertBytes);
    uint32_t taken = 0;
    for (int window = 1; window <= 1200; ++window) {
      budget.passed(1, 0.01);
      taken += take_all(budget);
      ASSERT_LE(taken, per_window * window + 1e-6) << window;
    }
    EXPECT_EQ(taken, static_cast<uint32_t>(1200 * per_window + 1e-6)) << per_window;
  }
}

TEST(ExchangeBudgetTest, HoldsTheBytesPerSecond) {
  ExchangeBudget budget({.bytes_per_second = 2500}, kExpertBytes);
  uint32_t taken = 0;
  for (int window = 0; window < 1000; ++window) {  // 10 seconds
    budget.passed(1, 0.01);
    taken += take_all(budget);
  }
  EXPECT_EQ(taken, 25U);
  for (int window = 0; window < 1000; ++window) budget.passed(1, 0.01);
  EXPECT_EQ(take_all(budget), 1U) << "idle seconds are not saved up, beyond the one expert they can begin";
}

TEST(ExchangeBudgetTest, BytesBeyondTheBudgetAreADebtThatLaterSecondsPay) {
  ExchangeBudget budget({.bytes_per_second = 1000}, kExpertBytes);
  budget.passed(1, 1);
  budget.spend(0, 5 * kExpertBytes);
  for (int second = 0; second < 4; ++second) {
    budget.passed(1, 1);
    EXPECT_EQ(budget.available(kMany), 0U) << second;
  }
  budget.passed(1, 1);
  EXPECT_EQ(take_all(budget), 1U);
}

TEST(ExchangeBudgetTest, NoExchangesAndNoBytesMeanNone) {
  ExchangeBudget none({.exchanges_per_window = 0}, kExpertBytes);
  ExchangeBudget no_bytes({.bytes_per_second = 0}, kExpertBytes);
  for (ExchangeBudget* budget : {&none, &no_bytes}) {
    budget->passed(1000, 1000);
    EXPECT_EQ(budget->available(kMany), 0U);
  }
}

TEST(ExchangeBudgetTest, NewLimitsHoldFromTheNextWindow) {
  ExchangeBudget budget({.exchanges_per_window = 8, .bytes_per_second = 1e9}, kExpertBytes);
  budget.passed(1, 0.01);
  budget.change({.exchanges_per_window = 1, .bytes_per_second = 1e9});
  EXPECT_EQ(take_all(budget), 8U);
  budget.passed(1, 0.01);
  EXPECT_EQ(take_all(budget), 1U);
  EXPECT_EQ(budget.limits().exchanges_per_window, 1);
}

}  // namespace
}  // namespace strata::residency
