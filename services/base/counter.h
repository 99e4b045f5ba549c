#pragma once
// Counters with one writer.

#include <atomic>
#include <cstdint>

namespace strata {

// Cheaper than fetch_add, and right only where one thread writes. Relaxed: readers take each value by itself.
inline void count(std::atomic<uint64_t>& counter, uint64_t value) {
  counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace strata
