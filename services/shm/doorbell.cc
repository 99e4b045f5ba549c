#include "services/shm/doorbell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

namespace strata::shm {
namespace {

using Clock = std::chrono::steady_clock;

// The clock costs about as much as this many pauses; between two looks at it the waiter only spins.
constexpr uint32_t kLooksPerClock = 64;
// A sleeper asks stop() this often, and sees a ring of a device, which cannot wake it.
constexpr uint64_t kSleepSliceUs = 50'000;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not the PRIVATE futex calls: the two sides are different processes.
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, uint64_t timeout_us) {
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_us / 1'000'000),
                         .tv_nsec = static_cast<long>(timeout_us % 1'000'000 * 1000)};
  // EAGAIN (the word has changed), ETIMEDOUT and EINTR all mean: look again.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

// Relaxed: nothing is read on its strength.
bool kept_awake(const WaitPolicy& policy) {
  return policy.awake_while != nullptr && policy.awake_while->load(std::memory_order_relaxed) != 0;
}

uint64_t elapsed_us(Clock::time_point since, Clock::time_point now) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now - since).count());
}

}  // namespace

void Doorbell::ring() {
  // Both sides sequentially consistent: either we see the sleeper, or it sees the new seq and does not sleep.
  // With anything weaker both may miss, and the ring is only noticed at the end of the sleep slice. The
  // increment is a release as well: what was written before it is visible to whoever sees the new seq.
  seq.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  wakes.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(wakes);
}

void Doorbell::wake() {
  // Moves in any case: a waiter that has not seen it move does not fall asleep, and one that has (acquire)
  // sees what was written before.
  wakes.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(wakes);
}

void relax(const WaitPolicy& policy) { policy.yield ? static_cast<void>(sched_yield()) : pause_cpu(); }

uint32_t Doorbell::wait(uint32_t seen, const WaitPolicy& policy, const std::function<bool()>& stop,
                        uint64_t timeout_us) {
  // Acquire: pairs with ring(); the caller may read what was written before the ring.
  const auto look = [&] { return seq.load(std::memory_order_acquire); };
  if (const uint32_t now = look(); now != seen) return now;
  const Clock::time_point start = Clock::now();
  Clock::time_point quiet_since = start, awake_since = start;
  uint32_t wakes_seen = wakes.load(std::memory_order_acquire);
  for (;;) {
    for (uint32_t i = 0; i < (policy.yield ? 1 : kLooksPerClock); ++i) {
      if (const uint32_t now = look(); now != seen) return now;
      relax(policy);
    }
    const Clock::time_point now = Clock::now();
    const uint64_t waited_us = elapsed_us(start, now);
    if (stop && stop()) return look();
    if (timeout_us != 0 && waited_us >= timeout_us) return look();
    const uint32_t woken = wakes.load(std::memory_order_acquire);
    const bool told_awake = kept_awake(policy);
    if (woken != wakes_seen) quiet_since = now;
    if (woken != wakes_seen || !told_awake) awake_since = now;
    wakes_seen = woken;
    if (policy.park_after_us == 0 || elapsed_us(quiet_since, now) < policy.park_after_us) continue;
    if (told_awake && elapsed_us(awake_since, now) < policy.awake_max_us) continue;
    const uint64_t slice_us =
        timeout_us == 0 ? kSleepSliceUs : std::min(kSleepSliceUs, timeout_us - waited_us);
    // The other half of the agreement in ring(). A wake() since `woken` was read makes the futex return.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (seq.load(std::memory_order_seq_cst) == seen) futex_wait(wakes, woken, slice_us);
    sleepers.fetch_sub(
        1, std::memory_order_relaxed);  // too large for a moment costs the ringer one syscall, nothing else
  }
}

}  // namespace strata::shm
