#include "services/shm/wake_cost.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "services/shm/doorbell.h"
#include "services/sys/cpus.h"

namespace strata::shm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kRings = 31;
// Long enough for the other thread to be in the futex, short enough to start quickly.
constexpr std::chrono::microseconds kFallsAsleep{100};
constexpr uint64_t kDeadlineUs = 1'000'000;
constexpr double kPauseShare = 20;
constexpr uint32_t kParkMaxUs = 100'000;  // a machine that cannot be measured now must not spin for seconds

// The first CPU and the next one that is another; none of them: the two threads would stand in each other's
// way.
std::vector<uint32_t> two_cpus(const std::vector<uint32_t>& cpus) {
  if (cpus.empty()) return {};
  const auto other = std::ranges::find_if(cpus, [&](uint32_t cpu) { return cpu != cpus.front(); });
  return other == cpus.end() ? std::vector<uint32_t>{} : std::vector<uint32_t>{cpus.front(), *other};
}

void pin(const std::vector<uint32_t>& two, std::size_t index) {
  // A thread that cannot be pinned is measured where it is.
  if (!two.empty()) static_cast<void>(sys::pin_this_thread(two[index]));
}

// Median time from ring to the other thread's going on.
double measure(const std::vector<uint32_t>& two, const WaitPolicy& policy, bool asleep) {
  Doorbell ping, pong;
  std::vector<Clock::time_point> rung(kRings), heard(kRings);
  std::thread listener([&] {
    pin(two, 1);
    uint32_t seen = 0;
    for (Clock::time_point& time : heard) {
      seen = ping.wait(seen, policy, {}, kDeadlineUs);
      time = Clock::now();
      pong.ring();
    }
  });
  std::thread ringer([&] {
    pin(two, 0);
    uint32_t seen = 0;
    for (Clock::time_point& time : rung) {
      if (asleep) std::this_thread::sleep_for(kFallsAsleep);
      time = Clock::now();
      ping.ring();
      seen = pong.wait(seen, {.yield = true, .park_after_us = 0}, {}, kDeadlineUs);
    }
  });
  ringer.join();
  listener.join();
  std::vector<double> times;
  for (uint32_t i = 0; i < kRings; ++i)
    times.push_back(std::chrono::duration<double, std::micro>(heard[i] - rung[i]).count());
  std::ranges::nth_element(times, times.begin() + kRings / 2);
  return std::max(0.0, times[kRings / 2]);
}

}  // namespace

WakeCost measure_wake_cost(const std::vector<uint32_t>& cpus) {
  const std::vector<uint32_t> two = two_cpus(cpus);
  return {.awake_us = measure(two, {.yield = two.empty(), .park_after_us = 0}, false),
          .asleep_us = measure(two, {.yield = true, .park_after_us = 1}, true)};
}

uint32_t park_after_us(uint32_t wanted_us, const WakeCost& cost) {
  if (wanted_us == 0) return 0;
  const double worth = std::min<double>(kParkMaxUs, std::ceil(cost.asleep_us * kPauseShare));
  return std::max(wanted_us, static_cast<uint32_t>(worth));
}

}  // namespace strata::shm
