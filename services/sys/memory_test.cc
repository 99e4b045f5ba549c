// available_memory_bytes() on made-up /proc and /sys/fs/cgroup folders.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "services/sys/cpus.h"

namespace strata::sys {
namespace {

class MemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-memory-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    write("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 100 kB\nMemAvailable:    8000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  uint64_t available() const {
    return available_memory_bytes((root_ / "proc").string(), (root_ / "cgroup").string());
  }

  uint64_t total() const {
    return total_memory_bytes((root_ / "proc").string(), (root_ / "cgroup").string());
  }

  std::filesystem::path root_;
};

TEST_F(MemoryTest, AllOfItIsTheMachinesWithoutGroups) { EXPECT_EQ(total(), 16000U * 1024); }

TEST_F(MemoryTest, AllOfItIsTheTightestGroupsLimitWhateverIsUsed) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/memory.max", "3000000\n");
  write("cgroup/a/memory.current", "2900000\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "1000000\n");
  EXPECT_EQ(total(), 3000000U);
}

TEST_F(MemoryTest, IsWhatTheKernelSaysWithoutGroups) { EXPECT_EQ(available(), 8000U * 1024); }

TEST_F(MemoryTest, IsWhatAVersion2GroupLeaves) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "3000000\n");
  write("cgroup/a/b/memory.current", "1000000\n");
  EXPECT_EQ(available(), 2000000U);
}

TEST_F(MemoryTest, CountsThePageCacheOfAGroupAsAvailable) {
  write("proc/self/cgroup", "0::/a\n");
  write("cgroup/a/memory.max", "3000000\n");
  write("cgroup/a/memory.current", "2900000\n");
  write("cgroup/a/memory.stat", "anon 900000\ninactive_file 1500000\nactive_file 400000\n");
  EXPECT_EQ(available(), 2000000U);
}

TEST_F(MemoryTest, TakesTheTightestGroupOnTheWayUp) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/memory.max", "1500000\n");
  write("cgroup/a/memory.current", "1000000\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "1000000\n");
  EXPECT_EQ(available(), 500000U);
}

TEST_F(MemoryTest, IsNothingWhenAGroupIsOverItsLimit) {
  write("proc/self/cgroup", "0::/a\n");
  write("cgroup/a/memory.max", "1000\n");
  write("cgroup/a/memory.current", "2000\n");
  EXPECT_EQ(available(), 0U);
}

TEST_F(MemoryTest, IsWhatAVersion1GroupLeaves) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/c1\n");
  // In a container the host's path does not exist below the mount.
  write("cgroup/memory/memory.limit_in_bytes", "4000000\n");
  write("cgroup/memory/memory.usage_in_bytes", "1500000\n");
  write("cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
  EXPECT_EQ(available(), 3000000U);
}

TEST_F(MemoryTest, IgnoresDamagedGroupLines) {
  write("proc/self/cgroup", "nonsense\n0:\n\n");
  EXPECT_EQ(available(), 8000U * 1024);
}

TEST_F(MemoryTest, FindsMemoryOnThisMachine) {
  EXPECT_GT(available_memory_bytes(), 1'000'000U);
  EXPECT_LT(available_memory_bytes(), UINT64_MAX);
}

}  // namespace
}  // namespace strata::sys
