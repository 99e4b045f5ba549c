#include "services/sys/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace strata::sys {
namespace {

TEST(CpusTest, PrefersExactlyTheAllowedCpusOfThisMachine) {
  std::vector<uint32_t> allowed = allowed_cpus();
  std::vector<uint32_t> preferred = cpus_by_preference();
  ASSERT_FALSE(allowed.empty());
  EXPECT_TRUE(std::ranges::is_sorted(allowed));
  std::ranges::sort(preferred);
  EXPECT_EQ(preferred, allowed);
}

TEST(CpusTest, CountsNoMoreCoresThanAllowedCpus) {
  EXPECT_GE(allowed_core_count(), 1U);
  EXPECT_LE(allowed_core_count(), allowed_cpus().size());
}

TEST(CpusTest, PinsAThreadToOneCpu) {
  const uint32_t cpu = allowed_cpus().back();
  Status pinned;
  int seen = -1;
  std::thread([&] {
    pinned = pin_this_thread(cpu);
    seen = sched_getcpu();
  }).join();
  EXPECT_TRUE(pinned.ok()) << pinned.message();
  EXPECT_EQ(seen, static_cast<int>(cpu));
}

TEST(CpusTest, ReportsACpuThatDoesNotExist) {
  Status pinned;
  std::thread([&] { pinned = pin_this_thread(60000); }).join();
  EXPECT_FALSE(pinned.ok());
}

}  // namespace
}  // namespace strata::sys
