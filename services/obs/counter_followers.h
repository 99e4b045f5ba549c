#pragma once
// Metrics that follow counters which only grow: hot paths count in atomics of their own, a timer carries them
// over, so that a scrape never touches what is measured.

#include <prometheus/counter.h>

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

namespace strata::obs {

class CounterFollowers {
 public:
  // unit: of one count, e.g. 1e-9 for nanoseconds shown as seconds. Both outlive this object.
  void follow(prometheus::Counter& counter, const std::atomic<uint64_t>& source, double unit = 1) {
    followers_.push_back({&counter, &source, unit});
  }
  void carry() {
    for (Follower& follower : followers_) {
      const uint64_t now = follower.source->load(std::memory_order_relaxed);
      const uint64_t more = now - std::exchange(follower.seen, now);
      follower.counter->Increment(static_cast<double>(more) * follower.unit);
    }
  }

 private:
  struct Follower {
    prometheus::Counter* counter;
    const std::atomic<uint64_t>* source;
    double unit;
    uint64_t seen = 0;
  };
  std::vector<Follower> followers_;
};

}  // namespace strata::obs
