#include "cpu-expert-worker/thread_plan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace strata::cpu_expert_worker {
namespace {

// 16 cores without SMT, or with: then CPUs 16..31 are the siblings, which come last.
MachineCpus machine(uint32_t cores, uint32_t cpus) {
  MachineCpus result{.preferred = std::vector<uint32_t>(cpus), .cores = cores};
  std::iota(result.preferred.begin(), result.preferred.end(), 0U);
  return result;
}

class ThreadPlanTest : public testing::Test {
 protected:
  void device(const char* type, uint32_t threads) {
    settings_.device_type.set(config::Choice{type});
    settings_.device_threads.set(threads);
  }
  config::Settings settings_;
};

TEST_F(ThreadPlanTest, GivesTheWorkersSlicesBehindTheGpuWorkersCores) {
  device("host", 4);
  settings_.cpu_experts_workers.set(2);
  settings_.cpu_experts_threads.set(3);
  const ThreadPlan first = plan_threads(settings_, 0, machine(16, 16));
  const ThreadPlan second = plan_threads(settings_, 1, machine(16, 16));
  EXPECT_EQ(first.cpus, (std::vector<uint32_t>{4, 5, 6}));
  EXPECT_EQ(second.cpus, (std::vector<uint32_t>{7, 8, 9}));
  EXPECT_FALSE(first.wait.yield);
  EXPECT_EQ(first.text(), "3 threads on CPUs 4,5,6, spinning");
}

TEST_F(ThreadPlanTest, YieldsUnpinnedWhereCoresAreShort) {
  device("host", 2);
  settings_.cpu_experts_threads.set(1);
  const ThreadPlan plan = plan_threads(settings_, 0, machine(2, 2));
  EXPECT_TRUE(plan.cpus.empty());
  EXPECT_TRUE(plan.wait.yield);
  EXPECT_EQ(plan.text(), "1 thread not pinned, yielding");
}

TEST_F(ThreadPlanTest, PinsWhenToldToEvenWhereCoresAreShort) {
  device("host", 2);
  settings_.cpu_experts_threads.set(3);
  settings_.cpu_experts_pin.set(config::Choice{"on"});
  const ThreadPlan plan = plan_threads(settings_, 0, machine(4, 4));
  EXPECT_EQ(plan.cpus, (std::vector<uint32_t>{2, 3, 0}));
  EXPECT_TRUE(plan.wait.yield);
}

TEST_F(ThreadPlanTest, NeverSpinsUnpinned) {
  device("host", 1);
  settings_.cpu_experts_threads.set(2);
  settings_.cpu_experts_pin.set(config::Choice{"off"});
  const ThreadPlan plan = plan_threads(settings_, 0, machine(16, 16));
  EXPECT_TRUE(plan.cpus.empty());
  EXPECT_TRUE(plan.wait.yield);
}

TEST_F(ThreadPlanTest, ChoosesHalfOfTheCoresBesideTheHostDevice) {
  device("host", 8);
  EXPECT_EQ(plan_threads(settings_, 0, machine(16, 32)).threads, 8U);
  settings_.cpu_experts_workers.set(2);
  EXPECT_EQ(plan_threads(settings_, 0, machine(16, 32)).threads, 4U);
}

TEST_F(ThreadPlanTest, ChoosesAllCoresButOneBesideAGpu) {
  device("cuda", 0);
  EXPECT_EQ(plan_threads(settings_, 0, machine(16, 32)).threads, 15U);
}

TEST_F(ThreadPlanTest, ChoosesAtLeastOneThread) {
  for (const char* type : {"host", "cuda"}) {
    device(type, 0);
    settings_.cpu_experts_workers.set(4);
    EXPECT_EQ(plan_threads(settings_, 3, machine(1, 1)).threads, 1U);
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
}  // namespace strata::cpu_expert_worker
