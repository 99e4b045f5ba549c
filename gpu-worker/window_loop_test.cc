// The loop with its thread and inbox, over the fake device: order at a boundary, sleeping, stopping, the
// watchdog.

#include "gpu-worker/window_loop.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>

#include "gpu-worker/answer_constraint.h"
#include "gpu-worker/fake_device.h"
#include "gpu-worker/parking/fake_store.h"
#include "services/grammar/test_support.h"

namespace strata::gpu_worker {
namespace {

constexpr std::chrono::seconds kPatience{10};

class WindowLoopTest : public testing::Test {
 protected:
  WindowLoopOptions options() {
    return {.device = &device_, .context_tokens = 100000, .prefill_chunk_tokens = 8, .inbox_max = 4};
  }
  static std::shared_ptr<Generation> generation(const std::shared_ptr<RecordingListener>& heard,
                                                uint32_t max_tokens) {
    return std::make_shared<Generation>(GenerationRequest{.request_id = "r",
                                                          .prompt = {1, 2, 3},
                                                          .generated = {},
                                                          .sampling = {},
                                                          .max_tokens = max_tokens,
                                                          .end_tokens = {}},
                                        heard);
  }

  FakeDevice device_{2};
};

TEST_F(WindowLoopTest, AnswersFromItsOwnThread) {
  WindowLoop loop(options());
  auto heard = std::make_shared<RecordingListener>();
  ASSERT_TRUE(loop.submit(generation(heard, 20)).ok());
  ASSERT_TRUE(heard->wait_over());
  EXPECT_EQ(heard->tokens(), fake_answer({1, 2, 3}, 20));
}

TEST_F(WindowLoopTest, SleepsWhileAnAnswerWaitsForItsMaskAndGoesOnWhenItIsMade) {
  std::mutex mutex;
  std::vector<std::thread> others;
  WindowLoopOptions with = options();
  with.finish_constraint = [&](std::shared_ptr<Generation> generation, std::function<void()> then) {
    const std::lock_guard lock(mutex);
    others.emplace_back([generation = std::move(generation), then = std::move(then)] {
      generation->constraint()->finish();
      then();
    });
  };
  WindowLoop loop(with);
  GenerationRequest what{.request_id = "r",
                         .prompt = {1, 2, 3},
                         .generated = {},
                         .sampling = {},
                         .max_tokens = 12,
                         .end_tokens = {}};
  what.constraint.gbnf = "root ::= \"a\" [bc]{20}";
  auto heard = std::make_shared<RecordingListener>();
  auto generation = std::make_shared<Generation>(what, heard);
  generation->constrain(*AnswerConstraint::create(what, grammar::compiled(what.constraint.gbnf), kFakeVocab));
  ASSERT_TRUE(loop.submit(generation).ok());
  ASSERT_TRUE(heard->wait_over());
  loop.stop();
  EXPECT_GT(others.size(), 0u) << "nothing was late";
  for (std::thread& thread : others) thread.join();
  const std::vector<int32_t> tokens = heard->tokens();
  ASSERT_EQ(tokens.size(), 12u);
  EXPECT_EQ(tokens[0], 'a');
  for (std::size_t i = 1; i < tokens.size(); ++i) EXPECT_TRUE(tokens[i] == 'b' || tokens[i] == 'c') << i;
}

TEST_F(WindowLoopTest, AppliesChangesBetweenWindowsOnly) {
  std::atomic<bool> in_window{false};
  std::atomic<int> overlaps{0};
  device_.on_window = [&] {
    in_window = true;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    in_window = false;
  };
  WindowLoop loop(options());
  auto heard = std::make_shared<RecordingListener>();
  auto running = generation(heard, 90000);
  ASSERT_TRUE(loop.submit(running).ok());
  ASSERT_TRUE(heard->wait_tokens(1));
  for (int i = 0; i < 50; ++i) {
    std::promise<std::thread::id> replied;
    std::thread::id applied_on;
    ASSERT_TRUE(loop.at_boundary(
                        [&] {
                          applied_on = std::this_thread::get_id();
                          if (in_window) ++overlaps;
                        },
                        [&] { replied.set_value(std::this_thread::get_id()); })
                    .ok());
    auto reply = replied.get_future();
    ASSERT_EQ(reply.wait_for(kPatience), std::future_status::ready);
    EXPECT_NE(reply.get(), applied_on) << "replies never hold up the loop";
  }
  EXPECT_EQ(overlaps, 0);
  running->cancel();
  ASSERT_TRUE(heard->wait_over());
  EXPECT_EQ(heard->status().code(), Code::kCancelled);
}

TEST_F(WindowLoopTest, AppliesChangesAtOnceWhenNothingRunsAndComputesNothing) {
  WindowLoop loop(options());
  std::promise<void> replied;
  ASSERT_TRUE(loop.at_boundary([] {}, [&] { replied.set_value(); }).ok());
  EXPECT_EQ(replied.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(device_.windows.empty());
}

TEST_F(WindowLoopTest, RefusesWhenItsInboxIsFull) {
  std::latch entered(1), proceed(1);
  device_.on_window = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    entered.count_down();
    proceed.wait();
  };
  WindowLoop loop(options());
  auto heard = std::make_shared<RecordingListener>();
  ASSERT_TRUE(loop.submit(generation(heard, 2)).ok());
  entered.wait();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(loop.at_boundary([] {}, [] {}).ok());
  EXPECT_EQ(loop.at_boundary([] {}, [] {}).code(), Code::kResourceExhausted);
  EXPECT_EQ(loop.submit(generation(heard, 2)).code(), Code::kResourceExhausted);
  proceed.count_down();
  EXPECT_TRUE(heard->wait_over());
}

TEST_F(WindowLoopTest, EndsEverythingWithAReasonWhenItStops) {
  WindowLoop loop(options());
  auto heard = std::make_shared<RecordingListener>();
  ASSERT_TRUE(loop.submit(generation(heard, 90000)).ok());
  ASSERT_TRUE(heard->wait_tokens(3));
  loop.stop();
  ASSERT_TRUE(heard->wait_over());
  EXPECT_EQ(heard->status().code(), Code::kUnavailable);
  EXPECT_EQ(loop.submit(generation(heard, 1)).code(), Code::kUnavailable);
  EXPECT_EQ(loop.counters().sequences_running, 0u);
}

// Long before anything has been left alone for long enough.
class WindowLoopWithStore : public WindowLoopTest {
 protected:
  static constexpr snapshot::Hash128 kOwn{.high = 1, .low = 1};

  WindowLoopOptions options(std::chrono::milliseconds park_at_stop) {
    WindowLoopOptions made = WindowLoopTest::options();
    made.store = &store_;
    made.park_after = std::chrono::hours(1);
    made.park_at_stop = park_at_stop;
    return made;
  }
  static std::shared_ptr<Generation> generation(const std::shared_ptr<RecordingListener>& heard,
                                                std::vector<int32_t> prompt, uint32_t max_tokens) {
    return std::make_shared<Generation>(GenerationRequest{.request_id = "r",
                                                          .prompt = std::move(prompt),
                                                          .generated = {},
                                                          .sampling = {},
                                                          .max_tokens = max_tokens,
                                                          .end_tokens = {},
                                                          .name_space = kOwn},
                                        heard);
  }
  // Whether the state is stored that an answer leaves behind: all but its last token, which was not fed.
  bool has_end_of(const std::vector<int32_t>& prompt, const RecordingListener& heard) {
    std::vector<int32_t> tokens = prompt;
    const std::vector<int32_t> answer = heard.tokens();
    tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
    const auto read = static_cast<uint32_t>(prompt.size()), all = static_cast<uint32_t>(tokens.size());
    std::vector<snapshot::TokenRange> generated;
    if (read < all) generated.push_back({read, all});
    return store_.contains(store_.id_of(kOwn, tokens, generated));
  }

  // Room for as many tokens as an answer may have by the time it is cut off.
  FakeStore store_{fake_identity(device_.state_layout()), 4000 * snapshot::kExtentUnitBytes};
};

TEST_F(WindowLoopWithStore, ParksWhatIsKeptWhenItStops) {
  const std::vector<int32_t> ended = {1, 2, 3}, cut_off = {7, 8};
  auto first = std::make_shared<RecordingListener>(), second = std::make_shared<RecordingListener>();
  {
    WindowLoop loop(options(std::chrono::milliseconds(kPatience)));
    ASSERT_TRUE(loop.submit(generation(first, ended, 5)).ok());
    ASSERT_TRUE(first->wait_over());
    EXPECT_EQ(store_.counters().stored, 0u);
    ASSERT_TRUE(loop.submit(generation(second, cut_off, 90000)).ok());
    ASSERT_TRUE(second->wait_tokens(3));
    loop.stop();
    EXPECT_TRUE(second->wait_over()) << "told before anything is parked";
    EXPECT_EQ(store_.counters().stored, 2u);
  }
  EXPECT_TRUE(has_end_of(ended, *first));
  EXPECT_TRUE(has_end_of(cut_off, *second));
}

TEST_F(WindowLoopWithStore, StopsThoughTheStoreTakesNothing) {
  WindowLoop loop(options(std::chrono::milliseconds(20)));
  auto heard = std::make_shared<RecordingListener>();
  ASSERT_TRUE(loop.submit(generation(heard, {1, 2, 3}, 5)).ok());
  ASSERT_TRUE(heard->wait_over());
  store_.hold();
  loop.stop();
  EXPECT_EQ(store_.counters().stored, 0u);
  store_.let_go();
}

TEST_F(WindowLoopTest, AStuckWindowIsReportedWithItsPhaseAndParties) {
  std::promise<std::string> reported;
  std::atomic<bool> said{false};
  std::latch proceed(1);
  device_.on_window = [&, first = true]() mutable {
    if (std::exchange(first, false)) proceed.wait();
  };
  WindowLoop loop(options());
  Watchdog watchdog({.trace = &loop.trace(),
                     .budget = std::chrono::milliseconds(20),
                     .parties = [&] { return device_.activity(); },
                     .on_stuck =
                         [&](const std::string& text) {
                           // Each stuck window is reported; on a busy machine there may be several.
                           if (!said.exchange(true)) reported.set_value(text);
                         }});
  auto heard = std::make_shared<RecordingListener>();
  ASSERT_TRUE(loop.submit(generation(heard, 2)).ok());
  auto report = reported.get_future();
  ASSERT_EQ(report.wait_for(kPatience), std::future_status::ready);
  std::string text = report.get();
  EXPECT_NE(text.find("in phase \"window\""), std::string::npos) << text;
  EXPECT_NE(text.find("engine.window_budget_ms: 20"), std::string::npos) << text;
  EXPECT_NE(text.find("fake device"), std::string::npos) << text;
  proceed.count_down();
  EXPECT_TRUE(heard->wait_over());
}

TEST_F(WindowLoopTest, AnIdleLoopIsNotStuck) {
  WindowLoop loop(options());
  std::atomic<int> reports{0};
  Watchdog watchdog({.trace = &loop.trace(),
                     .budget = std::chrono::milliseconds(5),
                     .parties = {},
                     .on_stuck = [&](const std::string&) { ++reports; }});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(reports, 0);
}

}  // namespace
}  // namespace strata::gpu_worker
