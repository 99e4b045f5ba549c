#pragma once
// Doorbell: one side rings, the other waits. Lives in shared memory, so it holds no pointer and uses no
// process-private futex.

#include <atomic>
#include <cstdint>
#include <functional>

#include "services/base/limits.h"

namespace strata::shm {

// How a waiter spends its time: spin while a ring is expected at any moment, yield where cores are
// oversubscribed (fewer cores than pinned threads), sleep after a quiet time. A device cannot wake a sleeper,
// the host can.
struct WaitPolicy {
  bool yield = false;             // sched_yield between looks, instead of spinning
  uint32_t park_after_us = 2000;  // then sleep in the futex; 0: never
  // While this is not 0, nobody sleeps, for awake_max_us at most: whoever set it may be dead. May be null.
  const std::atomic<uint32_t>* awake_while = nullptr;
  // From the beginning of the wait, from wake(), or from the moment the word was last 0.
  uint64_t awake_max_us = 10'000'000;
};

// One turn of a loop that waits for something short.
void relax(const WaitPolicy& policy);

struct alignas(kCacheLine) Doorbell {
  std::atomic<uint32_t> seq{0};  // wraps, so only "changed?" is ever asked
  std::atomic<uint32_t> sleepers{0};
  // Futex word: moves with every ring that finds a sleeper and with every wake(). Not seq, which wake() must
  // not move.
  std::atomic<uint32_t> wakes{0};

  // Publishes everything written before to whoever sees the new seq. One syscall only if somebody sleeps.
  void ring();
  // Brings sleepers back to looking, as if they had just begun to wait, without a ring: for awake_while,
  // which is set before. One that is about to fall asleep does not.
  void wake();
  // Returns the current seq once it differs from `seen`; or `seen` when stop() turned true (asked now and
  // then) or timeout_us is over (0: none).
  uint32_t wait(uint32_t seen, const WaitPolicy& policy, const std::function<bool()>& stop,
                uint64_t timeout_us = 0);
};
static_assert(sizeof(Doorbell) == kCacheLine);
static_assert(std::atomic<uint32_t>::is_always_lock_free, "a lock would live in one process only");

}  // namespace strata::shm
