#pragma once
// What an expert worker's threads count about themselves. They only ever grow; whoever shows them reads them
// now and then.

#include <atomic>
#include <cstdint>
#include <vector>

#include "services/base/limits.h"

namespace strata::cpu_expert_worker {

struct PoolCounters {
  explicit PoolCounters(uint32_t thread_count) : threads(thread_count) {}

  // Each on a line of its own: its thread writes it with every request.
  struct alignas(kCacheLine) Thread {
    std::atomic<uint64_t> busy_ns{0};  // computing: waiting for others is not busy
  };
  std::vector<Thread> threads;
  // Written by the leading thread, after it has answered.
  alignas(kCacheLine) std::atomic<uint64_t> busy_ns{0};  // with a request on the board
  std::atomic<uint64_t> experts{0};
  std::atomic<uint64_t> weight_bytes{0};
};

}  // namespace strata::cpu_expert_worker
