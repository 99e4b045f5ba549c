// The plan on made-up machines.

#include "services/expert/thread_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace strata::expert {
namespace {

sys::Topology machine(const std::string& notation, const sys::SyntheticOptions& options = {}) {
  auto topology = sys::synthetic_topology(notation, options);
  EXPECT_TRUE(topology) << topology.error().message();
  return topology ? *topology : sys::Topology{};
}
std::vector<uint32_t> range(uint32_t begin, uint32_t end, uint32_t step = 1) {
  std::vector<uint32_t> result;
  for (uint32_t i = begin; i < end; i += step) result.push_back(i);
  return result;
}

const char* const kSixteenCores = "core:16 pu:1";
const char* const kSixteenCoresWithSiblings = "core:16 pu:2";
const char* const kTwoNodes = "pack:2 numa:1 l3:4 core:8 pu:2";  // 32 cores each; CPUs 0..63 and 64..127

class ThreadPlanTest : public testing::Test {
 protected:
  void device(const char* type, uint32_t threads) {
    settings_.device_type.set(config::Choice{type});
    settings_.device_threads.set(threads);
  }
  ThreadPlan plan(uint32_t index, const sys::Topology& topology) const {
    return plan_threads(settings_, index, topology);
  }
  config::Settings settings_;
};

TEST_F(ThreadPlanTest, GivesTheWorkersSlicesBehindTheGpuWorkersCores) {
  device("host", 4);
  settings_.cpu_experts_workers.set(2);
  settings_.cpu_experts_threads.set(3);
  const ThreadPlan first = plan(0, machine(kSixteenCores));
  EXPECT_EQ(first.cpus, range(4, 7));
  EXPECT_EQ(plan(1, machine(kSixteenCores)).cpus, range(7, 10));
  EXPECT_FALSE(first.wait.yield);
  EXPECT_EQ(first.text(), "3 threads on CPUs 4,5,6, spinning");
}

TEST_F(ThreadPlanTest, YieldsUnpinnedWhereCoresAreShort) {
  device("host", 2);
  settings_.cpu_experts_threads.set(1);
  const ThreadPlan short_plan = plan(0, machine("core:2 pu:1"));
  EXPECT_TRUE(short_plan.cpus.empty());
  EXPECT_TRUE(short_plan.wait.yield);
  EXPECT_EQ(short_plan.text(), "1 thread not pinned, yielding");
  EXPECT_TRUE(plan_window_loop(settings_, machine("core:2 pu:1")).wait.yield);
  EXPECT_FALSE(plan_window_loop(settings_, machine("core:2 pu:1")).cpu);
}

TEST_F(ThreadPlanTest, PinsWhenToldToEvenWhereCoresAreShort) {
  device("host", 2);
  settings_.cpu_experts_threads.set(3);
  settings_.cpu_experts_pin.set(config::Choice{"on"});
  const ThreadPlan pinned = plan(0, machine("core:4 pu:1"));
  EXPECT_EQ(pinned.cpus, (std::vector<uint32_t>{2, 3, 0}));
  EXPECT_TRUE(pinned.wait.yield);
}

TEST_F(ThreadPlanTest, NeverSpinsUnpinned) {
  device("host", 1);
  settings_.cpu_experts_threads.set(2);
  settings_.cpu_experts_pin.set(config::Choice{"off"});
  const ThreadPlan unpinned = plan(0, machine(kSixteenCores));
  EXPECT_TRUE(unpinned.cpus.empty());
  EXPECT_TRUE(unpinned.wait.yield);
  EXPECT_EQ(plan_window_loop(settings_, machine(kSixteenCores)).text(), "not pinned, yielding");
}

TEST_F(ThreadPlanTest, ChoosesHalfOfTheCoresBesideTheHostDevice) {
  device("host", 8);
  EXPECT_EQ(plan(0, machine(kSixteenCoresWithSiblings)).threads, 8U);
  settings_.cpu_experts_workers.set(2);
  EXPECT_EQ(plan(0, machine(kSixteenCoresWithSiblings)).threads, 4U);
}

TEST_F(ThreadPlanTest, LeavesOneCoreForWindowLoopAndGatewayBesideAGpuAndTheSiblingsAlone) {
  device("cuda", 0);
  const ThreadPlan chosen = plan(0, machine(kSixteenCoresWithSiblings));
  EXPECT_EQ(chosen.threads, 15U);
  EXPECT_EQ(chosen.cpus, range(2, 32, 2));
  EXPECT_FALSE(chosen.wait.yield);
  EXPECT_EQ(plan_window_loop(settings_, machine(kSixteenCoresWithSiblings)).text(), "on CPU 0, spinning");
}

TEST_F(ThreadPlanTest, LeavesAnotherCoreWhereTheGatewayHasNoSiblingToRunOn) {
  device("cuda", 0);
  const ThreadPlan chosen = plan(0, machine(kSixteenCores));
  EXPECT_EQ(chosen.cpus, range(1, 15));
  EXPECT_FALSE(chosen.wait.yield);
  EXPECT_EQ(plan(0, machine("core:8 pu:1")).threads, 7U) << "few cores: none to spare";
}

TEST_F(ThreadPlanTest, KeepsEverythingElseOffTheExpertsAndTheWindowLoop) {
  device("cuda", 0);
  const auto others = [&](const sys::Topology& topology) { return plan_other_threads(settings_, topology); };
  EXPECT_EQ(others(machine(kSixteenCores)), range(15, 16));
  EXPECT_EQ(others(machine(kSixteenCoresWithSiblings)), range(1, 32, 2));
  EXPECT_EQ(others(machine(kTwoNodes)), range(1, 128, 2)) << "of all workers";
  EXPECT_TRUE(others(machine("core:8 pu:1")).empty()) << "none is left: anywhere";
  EXPECT_TRUE(others(machine(kSixteenCores, {.cpu_quota = 2.5})).empty()) << "nobody is pinned";
  settings_.cpu_experts_workers.set(0);
  EXPECT_TRUE(others(machine(kSixteenCores)).empty());
  settings_.cpu_experts_workers.set(1);
  settings_.cpu_experts_pin.set(config::Choice{"off"});
  EXPECT_TRUE(others(machine(kSixteenCores)).empty());
  settings_.cpu_experts_pin.set(config::Choice{"auto"});
  device("host", 4);
  EXPECT_TRUE(others(machine(kSixteenCores)).empty());
}

TEST_F(ThreadPlanTest, UsesSiblingsOnlyWhenToldSoManyThreads) {
  device("host", 16);
  const ThreadPlan by_itself = plan(0, machine(kSixteenCoresWithSiblings));
  EXPECT_EQ(by_itself.threads, 8U);
  EXPECT_TRUE(by_itself.cpus.empty()) << "the device has all physical cores";
  EXPECT_TRUE(by_itself.wait.yield);
  settings_.cpu_experts_threads.set(8);
  EXPECT_EQ(plan(0, machine(kSixteenCoresWithSiblings)).cpus, range(3, 19, 2));
}

TEST_F(ThreadPlanTest, KeepsTheWindowLoopsCoreFreeOfExpertThreads) {
  device("cuda", 0);
  settings_.cpu_experts_threads.set(30);
  const ThreadPlan most = plan(0, machine(kSixteenCoresWithSiblings));
  EXPECT_FALSE(most.wait.yield);
  std::vector<uint32_t> sorted = most.cpus;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, range(2, 32)) << "CPU 1 is the sibling of CPU 0";
  settings_.cpu_experts_threads.set(31);
  EXPECT_TRUE(plan(0, machine(kSixteenCoresWithSiblings)).wait.yield);
  EXPECT_FALSE(plan_window_loop(settings_, machine(kSixteenCoresWithSiblings)).cpu);
}

TEST_F(ThreadPlanTest, PinsTheWindowLoopWhereThereAreWorkersOnly) {
  device("cuda", 0);
  settings_.cpu_experts_workers.set(0);
  EXPECT_FALSE(plan_window_loop(settings_, machine(kSixteenCores)).cpu);
}

TEST_F(ThreadPlanTest, UsesSlowCoresOnlyWhenToldSoManyThreads) {
  device("cuda", 0);
  // Four fast cores with siblings, four slow ones whose "siblings" do not exist.
  const sys::Topology hybrid =
      machine("core:8 pu:2", {.allowed = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}, .slow_cpus = range(8, 16)});
  const ThreadPlan chosen = plan(0, hybrid);
  EXPECT_EQ(chosen.cpus, (std::vector<uint32_t>{2, 4, 6}));
  EXPECT_FALSE(chosen.wait.yield);
  settings_.cpu_experts_threads.set(7);
  EXPECT_EQ(plan(0, hybrid).cpus, (std::vector<uint32_t>{2, 4, 6, 8, 10, 12, 14}));
}

TEST_F(ThreadPlanTest, StaysWithinTheAffinityOfTheProcess) {
  device("cuda", 0);
  const ThreadPlan chosen = plan(0, machine(kSixteenCores, {.allowed = {3, 5, 9}}));
  EXPECT_EQ(chosen.cpus, (std::vector<uint32_t>{5, 9}));
}

TEST_F(ThreadPlanTest, StaysWithinTheCpuQuota) {
  device("cuda", 0);
  const ThreadPlan four_and_a_half = plan(0, machine(kSixteenCores, {.cpu_quota = 4.5}));
  EXPECT_EQ(four_and_a_half.threads, 2U) << "one CPU for the window loop, one for everything else";
  EXPECT_FALSE(four_and_a_half.wait.yield);
  const ThreadPlan two_and_a_half = plan(0, machine(kSixteenCores, {.cpu_quota = 2.5}));
  EXPECT_EQ(two_and_a_half.threads, 1U);
  EXPECT_TRUE(two_and_a_half.wait.yield) << "two that spin would leave too little";
  const ThreadPlan half = plan(0, machine(kSixteenCores, {.cpu_quota = 0.5}));
  EXPECT_EQ(half.threads, 1U);
  EXPECT_TRUE(half.wait.yield);
  settings_.cpu_experts_threads.set(6);
  const ThreadPlan told = plan(0, machine(kSixteenCores, {.cpu_quota = 2.5}));
  EXPECT_EQ(told.threads, 6U) << "an explicit number wins";
  EXPECT_TRUE(told.wait.yield) << "but six threads do not burn two CPUs by spinning";
  device("host", 0);
  EXPECT_EQ(host_device_threads(settings_, machine(kSixteenCores, {.cpu_quota = 2.5})), 2U);
}

TEST_F(ThreadPlanTest, PutsOneWorkerOnEachNumaNode) {
  device("cuda", 0);
  const sys::Topology topology = machine(kTwoNodes);
  EXPECT_EQ(worker_count(settings_, topology), 2U);
  const ThreadPlan first = plan(0, topology), second = plan(1, topology);
  EXPECT_EQ(first.cpus, range(2, 64, 2)) << "without the window loop's core";
  EXPECT_EQ(second.cpus, range(64, 128, 2));
  EXPECT_EQ(first.node, 0U);
  EXPECT_EQ(second.node, 1U);
  EXPECT_FALSE(second.wait.yield);
  EXPECT_TRUE(second.text().ends_with(" of NUMA node 1, spinning")) << second.text();
}

TEST_F(ThreadPlanTest, SparesCoresOnlyBesideTheWindowLoop) {
  device("cuda", 0);
  const sys::Topology topology = machine("pack:2 numa:1 l3:4 core:8 pu:1");
  EXPECT_EQ(plan(0, topology).threads, 29U);
  EXPECT_EQ(plan(1, topology).threads, 31U) << "half of what all but the window loop's core are";
}

TEST_F(ThreadPlanTest, SharesTheNodesAmongMoreWorkers) {
  device("cuda", 0);
  settings_.cpu_experts_workers.set(4);
  const sys::Topology topology = machine(kTwoNodes);
  std::set<uint32_t> used;
  for (uint32_t index = 0; index < 4; ++index) {
    const ThreadPlan chosen = plan(index, topology);
    EXPECT_EQ(chosen.node, index % 2);
    EXPECT_EQ(chosen.threads, index % 2 == 0 ? 15U : 16U);
    for (const uint32_t cpu : chosen.cpus) EXPECT_TRUE(used.insert(cpu).second) << cpu << " twice";
  }
}

TEST_F(ThreadPlanTest, OneWorkerOnTwoNodesUsesBoth) {
  device("cuda", 0);
  settings_.cpu_experts_workers.set(1);
  const ThreadPlan chosen = plan(0, machine(kTwoNodes));
  EXPECT_EQ(chosen.threads, 63U);
  EXPECT_FALSE(chosen.node);
}

TEST_F(ThreadPlanTest, CountsOnlyNodesWhoseCpusAreAllowed) {
  EXPECT_EQ(worker_count(settings_, machine(kTwoNodes, {.allowed = range(64, 72)})), 1U);
  settings_.cpu_experts_workers.set(0);
  EXPECT_EQ(worker_count(settings_, machine(kTwoNodes)), 0U) << "an explicit number wins";
}

TEST_F(ThreadPlanTest, ChoosesAtLeastOneThread) {
  for (const char* type : {"host", "cuda"}) {
    device(type, 0);
    settings_.cpu_experts_workers.set(4);
    EXPECT_EQ(plan(3, machine("core:1 pu:1")).threads, 1U);
    EXPECT_EQ(plan(3, sys::Topology{}).threads, 1U) << "a machine that nothing is known of";
  }
}

TEST_F(ThreadPlanTest, MakesAPlanForThisMachine) {
  const sys::Topology topology = sys::machine_topology();
  for (uint32_t index = 0; index < worker_count(settings_); ++index) {
    const ThreadPlan chosen = plan(index, topology);
    EXPECT_GE(chosen.threads, 1U);
    EXPECT_LE(chosen.threads, topology.cpu_count());
  }
}

TEST(WorkerIndexTest, IsTheNumberBehindTheName) {
  EXPECT_EQ(worker_index("cpu-expert-worker-0"), 0U);
  EXPECT_EQ(worker_index("cpu-expert-worker-12"), 12U);
  EXPECT_EQ(worker_index("cpu-expert-worker-"), 0U);
  EXPECT_EQ(worker_index("cpu-expert-worker-1x"), 0U);
  EXPECT_EQ(worker_index("mine"), 0U);
}

}  // namespace
}  // namespace strata::expert
