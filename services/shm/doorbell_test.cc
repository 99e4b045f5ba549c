#include "services/shm/doorbell.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <chrono>
#include <thread>
#include <vector>

namespace strata::shm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Far beyond anything a loaded machine needs; a lost ring would wait for it and fail the test.
constexpr uint64_t kDeadlineUs = 60'000'000;

class DoorbellTest : public testing::TestWithParam<WaitPolicy> {};

// Two threads hand a plain number back and forth; under ThreadSanitizer this proves that ring and wait order
// the accesses.
TEST_P(DoorbellTest, HandsWhatWasWrittenBeforeTheRingToTheWaiter) {
  constexpr uint64_t kRounds = 2000;
  Doorbell ping, pong;
  uint64_t value = 0;
  std::thread other([&] {
    uint32_t seen = 0;
    for (uint64_t round = 0; round < kRounds; ++round) {
      seen = ping.wait(seen, GetParam(), {}, kDeadlineUs);
      value = value * 3 + round;
      pong.ring();
    }
  });
  uint64_t expected = 0;
  uint32_t seen = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    value += 7;
    expected = (expected + 7) * 3 + round;
    ping.ring();
    const uint32_t now = pong.wait(seen, GetParam(), {}, kDeadlineUs);
    ASSERT_NE(now, seen) << "round " << round << " got no answer";
    seen = now;
    ASSERT_EQ(value, expected);
  }
  other.join();
  EXPECT_EQ(ping.sleepers.load(), 0U);
}

TEST_P(DoorbellTest, EndsTheWaitAtItsTimeout) {
  Doorbell bell;
  const auto start = Clock::now();
  EXPECT_EQ(bell.wait(0, GetParam(), {}, 20'000), 0U);
  EXPECT_GE(Clock::now() - start, 20ms);
}

TEST_P(DoorbellTest, EndsTheWaitWhenItIsToldToStop) {
  Doorbell bell;
  std::atomic<bool> stopping{false};
  std::thread stopper([&] {
    std::this_thread::sleep_for(20ms);
    stopping = true;
  });
  const std::function<bool()> stop = [&] { return stopping.load(); };
  EXPECT_EQ(bell.wait(0, GetParam(), stop), 0U);
  stopper.join();
}

TEST_P(DoorbellTest, ReturnsAtOnceForARingThatCameBefore) {
  Doorbell bell;
  bell.ring();
  EXPECT_EQ(bell.wait(0, GetParam(), {}), 1U);
}

TEST_P(DoorbellTest, WakesEveryWaiter) {
  Doorbell bell;
  std::vector<std::thread> waiters;
  std::atomic<uint32_t> woken{0};
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { woken += bell.wait(0, GetParam(), {}, kDeadlineUs); });
  }
  std::this_thread::sleep_for(10ms);
  bell.ring();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(woken.load(), 3U);
}

// Bounded waiting for what another thread does.
bool becomes(const std::atomic<uint32_t>& value, uint32_t wanted) {
  for (int i = 0; i < 6000 && value.load() != wanted; ++i) std::this_thread::sleep_for(1ms);
  return value.load() == wanted;
}

TEST(DoorbellAwakeTest, NobodySleepsWhileToldToStayAwake) {
  for (const bool yield : {false, true}) {
    Doorbell bell;
    std::atomic<uint32_t> awake{1};
    std::thread waiter(
        [&] { bell.wait(0, {.yield = yield, .park_after_us = 1, .awake_while = &awake}, {}, kDeadlineUs); });
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(bell.sleepers.load(), 0U);
    awake = 0;
    EXPECT_TRUE(becomes(bell.sleepers, 1)) << "it may sleep now";
    awake = 1;
    bell.wake();
    EXPECT_TRUE(becomes(bell.sleepers, 0)) << "woken without a ring";
    bell.ring();
    waiter.join();
  }
}

// Processor time that the thread takes in the next tenth of a second.
std::chrono::nanoseconds time_taken(std::thread& thread) {
  clockid_t clock{};
  EXPECT_EQ(pthread_getcpuclockid(thread.native_handle(), &clock), 0);
  const auto taken = [&] {
    timespec time{};
    EXPECT_EQ(clock_gettime(clock, &time), 0);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto before = taken();
  std::this_thread::sleep_for(100ms);
  return taken() - before;
}

TEST(DoorbellAwakeTest, SleepsAgainWhenItWasToldToStayAwakeForTooLong) {
  for (const bool quiet_before : {false, true}) {
    Doorbell bell;
    std::atomic<uint32_t> awake{quiet_before ? 0U : 1U};
    std::thread waiter([&] {
      bell.wait(0, {.park_after_us = 1, .awake_while = &awake, .awake_max_us = 20'000}, {}, kDeadlineUs);
    });
    if (quiet_before) {
      // Longer than the limit: sleep does not count.
      std::this_thread::sleep_for(60ms);
      awake = 1;
      bell.wake();
    }
    std::this_thread::sleep_for(60ms);
    EXPECT_TRUE(becomes(bell.sleepers, 1));
    EXPECT_LT(time_taken(waiter), 50ms) << "it neither spins nor tries to sleep all the time";
    bell.ring();
    waiter.join();
  }
}

TEST(DoorbellAwakeTest, StaysAwakeForALimitThatBeginsWithTheWake) {
  Doorbell bell;
  std::atomic<uint32_t> awake{0};
  std::thread waiter([&] {
    bell.wait(0, {.yield = true, .park_after_us = 1, .awake_while = &awake, .awake_max_us = 300'000}, {},
              kDeadlineUs);
  });
  std::this_thread::sleep_for(400ms);
  awake = 1;
  bell.wake();
  EXPECT_TRUE(becomes(bell.sleepers, 0));
  EXPECT_TRUE(becomes(bell.sleepers, 1)) << "and then sleeps, though it is told not to";
  awake = 0;
  bell.ring();
  waiter.join();
}

TEST_P(DoorbellTest, WrapsAround) {
  Doorbell bell;
  bell.seq = UINT32_MAX;
  bell.ring();
  EXPECT_EQ(bell.wait(UINT32_MAX, GetParam(), {}, kDeadlineUs), 0U);
}

INSTANTIATE_TEST_SUITE_P(Policies, DoorbellTest,
                         testing::Values(WaitPolicy{.yield = false, .park_after_us = 0},
                                         WaitPolicy{.yield = true, .park_after_us = 0},
                                         WaitPolicy{.yield = true, .park_after_us = 1},
                                         WaitPolicy{.yield = false, .park_after_us = 50}),
                         [](const auto& policy) {
                           return fmt::format("{}{}", policy.param.yield ? "Yield" : "Spin",
                                              policy.param.park_after_us == 0 ? "ForEver" : "ThenSleep");
                         });

}  // namespace
}  // namespace strata::shm
