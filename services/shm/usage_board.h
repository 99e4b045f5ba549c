#pragma once
// The usage board (gpu-worker -> cache manager): how often each expert was routed to, counted by the window
// loop with relaxed atomics, read by the cache manager whenever it likes. Counters only ever grow; readers
// keep the last value themselves.

#include <atomic>
#include <cstdint>

#include "services/base/status.h"
#include "services/shm/segment.h"

namespace strata::shm {

inline constexpr uint32_t kUsageLayoutVersion = 1;

struct alignas(kCacheLine) UsageHeader {
  uint32_t layers = 0;
  uint32_t experts = 0;                    // per layer, the largest count
  std::atomic<uint64_t> windows{0};        // windows finished
  std::atomic<uint64_t> decode_tokens{0};  // rows of those that were generated tokens
  std::atomic<uint64_t> prefill_tokens{0};
};

class UsageBoard {
 public:
  static Result<UsageBoard> create(const std::string& name, uint32_t layers, uint32_t experts);
  static Result<UsageBoard> attach(const std::string& name, uint64_t bytes, uint64_t instance_id);

  UsageHeader& header() const;
  // (layers, experts); how often a decode / prompt token was routed there, hits and misses together.
  std::atomic<uint64_t>& decode(uint32_t layer, uint32_t expert) const;
  std::atomic<uint64_t>& prefill(uint32_t layer, uint32_t expert) const;
  const Segment& segment() const { return segment_; }

 private:
  Segment segment_;
};

}  // namespace strata::shm
