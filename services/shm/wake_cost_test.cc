#include "services/shm/wake_cost.h"

#include <gtest/gtest.h>

#include "services/sys/cpus.h"

namespace strata::shm {
namespace {

TEST(WakeCostTest, IsMeasuredWhereverTheThreadsRun) {
  for (const auto& cpus : {std::vector<uint32_t>{}, sys::cpus_by_preference(), {0xffff, 0xfffe}, {0, 0}}) {
    const WakeCost cost = measure_wake_cost(cpus);
    EXPECT_GT(cost.asleep_us, 0);
    EXPECT_GE(cost.awake_us, 0);
    EXPECT_LT(cost.asleep_us, 1e6);
  }
}

TEST(WakeCostTest, MakesThreadsWaitAwakeForAsLongAsWakingUpIsDear) {
  EXPECT_EQ(park_after_us(2000, {.awake_us = 0.1, .asleep_us = 5}), 2000U);
  EXPECT_EQ(park_after_us(2000, {.awake_us = 0.1, .asleep_us = 300}), 6000U);
  EXPECT_EQ(park_after_us(0, {.awake_us = 0.1, .asleep_us = 300}), 0U) << "never stays never";
  EXPECT_EQ(park_after_us(2000, {.awake_us = 1, .asleep_us = 1e9}), 100'000U);
}

}  // namespace
}  // namespace strata::shm
