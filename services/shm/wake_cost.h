#pragma once
// What it costs on this machine to reach a thread that waits at a doorbell, awake or asleep: measured at the
// start of whoever has to choose how long to stay awake.

#include <cstdint>
#include <vector>

namespace strata::shm {

struct WakeCost {
  double awake_us = 0;   // from the ring until a waiting thread goes on; median
  double asleep_us = 0;  // the same for one that sleeps in the futex
};

// Two threads for some milliseconds, on the first two different ones of `cpus` (fewer: where they like, and
// waiting by yielding).
WakeCost measure_wake_cost(const std::vector<uint32_t>& cpus);

// How long to wait awake before sleeping, at least `wanted_us` (0, never sleep, stays): so long that waking
// up adds no more than a twentieth to a pause which is longer.
uint32_t park_after_us(uint32_t wanted_us, const WakeCost& cost);

}  // namespace strata::shm
