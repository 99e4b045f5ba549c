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

TEST(CpusTest, KeepsAThreadAndThoseThatItStarts) {
  const std::vector<uint32_t> allowed = allowed_cpus();
  const std::vector<uint32_t> last(allowed.end() - std::min<std::ptrdiff_t>(2, std::ssize(allowed)),
                                   allowed.end());
  std::vector<uint32_t> own, inherited, pinned;
  const std::vector<uint32_t> machine_before = cpus_by_preference();
  std::thread([&] {
    ASSERT_TRUE(keep_this_thread_on(last).ok());
    own = allowed_cpus();
    std::thread([&] {
      inherited = allowed_cpus();
      ASSERT_TRUE(pin_this_thread(allowed.front()).ok());
      pinned = allowed_cpus();
    }).join();
    EXPECT_EQ(cpus_by_preference(), machine_before);
  }).join();
  EXPECT_EQ(own, last);
  EXPECT_EQ(inherited, last);
  EXPECT_EQ(pinned, std::vector<uint32_t>{allowed.front()});
}

TEST(CpusTest, ReportsACpuThatDoesNotExist) {
  Status pinned;
  std::thread([&] { pinned = pin_this_thread(60000); }).join();
  EXPECT_FALSE(pinned.ok());
}

}  // namespace
}  // namespace strata::sys
