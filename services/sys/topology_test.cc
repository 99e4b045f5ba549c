#include "services/sys/topology.h"

#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "services/sys/cpus.h"

namespace strata::sys {
namespace {

using testing::ElementsAre;

Topology made_up(const std::string& notation, const SyntheticOptions& options = {}) {
  auto topology = synthetic_topology(notation, options);
  EXPECT_TRUE(topology) << topology.error().message();
  return topology ? *topology : Topology{};
}

TEST(TopologyTest, PrefersOneCpuOfEachCoreThenTheSiblings) {
  const Topology topology = made_up("pack:1 core:4 pu:2");
  EXPECT_EQ(topology.cores.size(), 4U);
  EXPECT_EQ(topology.cpu_count(), 8U);
  EXPECT_THAT(topology.preferred(), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

TEST(TopologyTest, LeavesOutCpusThatAreNotAllowed) {
  const Topology topology = made_up("pack:1 core:4 pu:2", {.allowed = {7, 3, 6, 4}});
  EXPECT_THAT(topology.preferred(), ElementsAre(3, 4, 6, 7));
  EXPECT_EQ(topology.cores.size(), 3U);
}

TEST(TopologyTest, PutsSlowCoresBehindFastOnesAndBeforeSiblings) {
  // Two performance cores with SMT, four efficiency cores without: hwloc's notation has SMT everywhere, so
  // the siblings of the latter are not allowed.
  const Topology topology = made_up(
      "pack:1 core:6 pu:2", {.allowed = {0, 1, 2, 3, 4, 6, 8, 10}, .slow_cpus = {4, 5, 6, 7, 8, 9, 10, 11}});
  EXPECT_THAT(topology.preferred(), ElementsAre(0, 2, 4, 6, 8, 10, 1, 3));
}

TEST(TopologyTest, CallsNoCoreSlowWhereAllAreOfOneKind) {
  const Topology topology = made_up("pack:1 core:2 pu:1", {.slow_cpus = {0, 1}});
  EXPECT_FALSE(topology.cores[0].slow);
  EXPECT_FALSE(topology.cores[1].slow);
}

TEST(TopologyTest, CallsNoCoreSlowWhereOnlySlowOnesAreAllowed) {
  const Topology topology = made_up("pack:1 core:4 pu:1", {.allowed = {2, 3}, .slow_cpus = {2, 3}});
  EXPECT_EQ(topology.fast_core_count(), 2U);
  EXPECT_EQ(made_up("pack:1 core:4 pu:1", {.slow_cpus = {2, 3}}).fast_core_count(), 2U);
}

TEST(TopologyTest, KnowsTheCoresOfEachNumaNode) {
  const Topology topology = made_up("pack:2 numa:1 l3:4 core:8 pu:2");
  EXPECT_EQ(topology.cores.size(), 64U);
  EXPECT_THAT(topology.nodes(), ElementsAre(0, 1));
  EXPECT_EQ(topology.fast_core_count(1), 32U);
  EXPECT_EQ(topology.fast_core_count(), 64U);
  const std::vector<uint32_t> second = topology.preferred(1);
  ASSERT_EQ(second.size(), 64U);
  EXPECT_EQ(second.front(), 64U);
  EXPECT_EQ(second[31], 126U);
  EXPECT_EQ(second[32], 65U);
}

TEST(TopologyTest, ForgetsANodeWithoutAllowedCpus) {
  std::vector<uint32_t> allowed(8);
  std::iota(allowed.begin(), allowed.end(), 8U);
  EXPECT_THAT(made_up("pack:2 numa:1 core:4 pu:2", {.allowed = allowed}).nodes(), ElementsAre(1));
}

TEST(TopologyTest, RefusesANotationThatMakesNoSense) {
  EXPECT_EQ(synthetic_topology("core:many").error().code(), Code::kInvalidArgument);
}

TEST(TopologyTest, LetsNoMoreCpusBeBusyThanTheQuotaPaysFor) {
  EXPECT_EQ(made_up("core:16 pu:1").busy_cpus_max(), 16U);
  EXPECT_EQ(made_up("core:16 pu:1", {.cpu_quota = 2.5}).busy_cpus_max(), 2U);
  EXPECT_EQ(made_up("core:16 pu:1", {.cpu_quota = 0.4}).busy_cpus_max(), 1U);
  EXPECT_EQ(made_up("core:2 pu:1", {.cpu_quota = 8}).busy_cpus_max(), 2U);
}

TEST(TopologyTest, FindsExactlyTheAllowedCpusOfThisMachine) {
  std::vector<uint32_t> preferred = machine_topology().preferred();
  std::ranges::sort(preferred);
  EXPECT_EQ(preferred, allowed_cpus());
}

// ---- quota

class CpuQuotaTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-quota-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double quota() const { return cpu_quota((root_ / "proc").string(), (root_ / "cgroup").string()); }

  std::filesystem::path root_;
};

TEST_F(CpuQuotaTest, IsNoneWithoutGroups) { EXPECT_EQ(quota(), 0); }

TEST_F(CpuQuotaTest, ComesFromVersion2) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 2.5);
}

TEST_F(CpuQuotaTest, IsTheTightestOnTheWayUp) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/cpu.max", "150000 100000\n");
  write("cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.5);
  write("cgroup/a/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 4);
  write("cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

// A container sees its own group as the root of the mount, and the host's path in /proc.
TEST_F(CpuQuotaTest, ComesFromTheMountsRootInAContainer) {
  write("proc/self/cgroup", "0::/../host/only\n");
  write("cgroup/cpu.max", "300000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 3);
}

TEST_F(CpuQuotaTest, ComesFromVersion1) {
  write("proc/self/cgroup", "5:memory:/a\n3:cpuacct,cpu:/a\n");
  write("cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
  write("cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.5);
  write("cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CpuQuotaTest, ComesFromAVersion1MountOfSeveralControllers) {
  write("proc/self/cgroup", "3:cpu,cpuacct:/a\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  write("cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.5);
}

// ---- memory

TEST(NodeMemoryTest, IsPreferredForTheThreadThatAsks) {
  Status status;
  int mode = -1;
  unsigned long mask[16] = {};
  const uint32_t node = machine_topology().nodes().front();
  std::thread([&] {
    status = prefer_memory_of_node(node);
    syscall(SYS_get_mempolicy, &mode, mask, sizeof(mask) * 8, nullptr, 0);
  }).join();
  if (status.code() == Code::kPermissionDenied || status.code() == Code::kUnimplemented)
    GTEST_SKIP() << status.message();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(mode, MPOL_PREFERRED);
  EXPECT_EQ(mask[node / 64], 1UL << node % 64);
}

TEST(NodeMemoryTest, SaysWhenThereIsNoSuchNode) {
  Status status;
  std::thread([&] { status = prefer_memory_of_node(1000); }).join();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace strata::sys
