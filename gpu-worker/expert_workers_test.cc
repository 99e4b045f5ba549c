#include "gpu-worker/expert_workers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace strata::gpu_worker {
namespace {

class ExpertWorkersTest : public testing::Test {
 protected:
  void TearDown() override { shm::remove_stale_segments(run_); }

  std::shared_ptr<AttachedWorker> attach(const std::string& name) {
    auto worker = workers_.attach(name, static_cast<uint32_t>(getpid()), [this] { ++retired_; });
    EXPECT_TRUE(worker) << worker.error().message();
    return worker ? *worker : nullptr;
  }
  static bool can_attach(const AttachedWorker& worker) {
    const shm::Segment& segment = worker.board.segment();
    return shm::Board::attach(segment.name(), segment.bytes(), segment.instance_id()).has_value();
  }

  std::string run_ = fmt::format("{:08x}", static_cast<uint32_t>(shm::random_instance_id()));
  uint32_t retired_ = 0;
  ExpertWorkers workers_{
      {.run_id = run_, .geometry = {.hidden = 64, .tokens_max = 2, .pairs_max = 8}, .expected = 2}};
};

TEST_F(ExpertWorkersTest, NamesTheExpectedWorkersThatAreMissing) {
  EXPECT_EQ(workers_.missing(), (std::vector<std::string>{"cpu-expert-worker-0", "cpu-expert-worker-1"}));
  attach("cpu-expert-worker-1");
  EXPECT_EQ(workers_.missing(), std::vector<std::string>{"cpu-expert-worker-0"});
}

TEST_F(ExpertWorkersTest, TakesWorkersInAndOutAtWindowBoundariesOnly) {
  auto worker = attach("cpu-expert-worker-0");
  EXPECT_TRUE(workers_.in_window().empty());
  EXPECT_EQ(workers_.at_window_boundary().size(), 1U);
  EXPECT_TRUE(can_attach(*worker));
  EXPECT_EQ(workers_.detach(worker), "its stream ended");
  EXPECT_EQ(workers_.in_window().size(), 1U) << "the running window may still point into its board";
  EXPECT_FALSE(can_attach(*worker));
  EXPECT_TRUE(workers_.at_window_boundary().empty());
  EXPECT_EQ(retired_, 1U);
}

TEST_F(ExpertWorkersTest, ReplacesAWorkerOfTheSameName) {
  auto old_one = attach("cpu-expert-worker-0");
  workers_.at_window_boundary();
  auto new_one = attach("cpu-expert-worker-0");
  EXPECT_EQ(retired_, 1U);
  EXPECT_FALSE(can_attach(*old_one));
  EXPECT_TRUE(can_attach(*new_one));
  ASSERT_EQ(workers_.at_window_boundary().size(), 1U);
  EXPECT_EQ(workers_.at_window_boundary()[0], new_one);
  EXPECT_EQ(workers_.detach(old_one), fmt::format("process {} took its place", getpid()));
  EXPECT_EQ(workers_.at_window_boundary().size(), 1U) << "a late end of the old stream changes nothing";
  EXPECT_EQ(retired_, 1U);
}

TEST_F(ExpertWorkersTest, ExpectsNothingFromAWorkerThatHasLeft) {
  auto worker = attach("cpu-expert-worker-0");
  workers_.at_window_boundary();
  workers_.detach(worker);
  EXPECT_FALSE(workers_.wait_done(*worker, 1, 1)) << "at once, long before it would count as lost";
}

TEST_F(ExpertWorkersTest, TakesDoneAsDoneWhateverHappensLater) {
  auto worker = attach("cpu-expert-worker-0");
  workers_.at_window_boundary();
  worker->board.header().done_ticket = 5;
  workers_.detach(worker);
  EXPECT_TRUE(workers_.wait_done(*worker, 5, 1));
  EXPECT_FALSE(workers_.wait_done(*worker, 6, 1));
}

TEST_F(ExpertWorkersTest, MarksAWindowAsOpenWhereWorkersShallStayAwake) {
  for (const bool keep_awake : {true, false}) {
    ExpertWorkers workers({.run_id = run_,
                           .geometry = {.hidden = 64, .tokens_max = 2, .pairs_max = 8},
                           .keep_awake = keep_awake});
    auto worker = workers.attach("cpu-expert-worker-0", static_cast<uint32_t>(getpid()), {});
    ASSERT_TRUE(worker);
    const auto& open = (*worker)->board.header().window_open;
    EXPECT_EQ(open, 0U);
    workers.at_window_boundary();
    EXPECT_EQ(open, keep_awake ? 1U : 0U);
    workers.window_over();
    EXPECT_EQ(open, 0U);
  }
}

TEST_F(ExpertWorkersTest, KeepsWorkersInTheOrderOfTheirNames) {
  for (const char* name : {"cpu-expert-worker-1", "cpu-expert-worker-2", "cpu-expert-worker-0"}) attach(name);
  std::vector<std::string> names;
  for (const auto& worker : workers_.at_window_boundary()) names.push_back(worker->name);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(names.size(), 3U);
}

TEST_F(ExpertWorkersTest, RefusesAProcessThatDoesNotExist) {
  auto worker = workers_.attach("cpu-expert-worker-0", 0, {});
  ASSERT_FALSE(worker);
  EXPECT_EQ(worker.error().code(), Code::kNotFound);
}

TEST_F(ExpertWorkersTest, RefusesMoreWorkersThanThereCanBe) {
  for (uint32_t i = 0; i < kExpertWorkersMax; ++i) attach(fmt::format("cpu-expert-worker-{}", i));
  auto one_more = workers_.attach("another", static_cast<uint32_t>(getpid()), {});
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code(), Code::kResourceExhausted);
  attach("cpu-expert-worker-3");
  EXPECT_EQ(workers_.at_window_boundary().size(), kExpertWorkersMax);
}

// gRPC threads attach and detach while the window loop runs; under ThreadSanitizer this proves the locking.
TEST_F(ExpertWorkersTest, LetsOtherThreadsAttachWhileWindowsRun) {
  std::atomic<bool> stopping{false};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 50; ++i) {
        auto worker =
            workers_.attach(fmt::format("cpu-expert-worker-{}", caller), static_cast<uint32_t>(getpid()), {});
        ASSERT_TRUE(worker);
        workers_.detach(*worker);
      }
    });
  }
  std::thread window_loop([&] {
    while (!stopping) {
      for (const auto& worker : workers_.at_window_boundary()) {
        if (!worker->retired.load(std::memory_order_relaxed)) worker->board.header().request.layer = 1;
      }
      static_cast<void>(workers_.missing());
    }
  });
  for (auto& caller : callers) caller.join();
  stopping = true;
  window_loop.join();
  EXPECT_TRUE(workers_.at_window_boundary().empty());
}

}  // namespace
}  // namespace strata::gpu_worker
