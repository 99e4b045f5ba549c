#pragma once
// The usage board (gpu-worker -> cache manager): how often each expert was routed to and how often it was
// there, counted by the window loop with relaxed atomics, read by the cache manager whenever it likes.
// Counters only ever grow; readers keep the last value themselves. A doorbell rings with each window.

#include <atomic>
#include <cstdint>

#include "services/base/counter.h"
#include "services/base/status.h"
#include "services/shm/doorbell.h"
#include "services/shm/segment.h"

namespace strata::shm {

inline constexpr uint32_t kUsageLayoutVersion = 2;

struct alignas(kCacheLine) UsageHeader {
  uint32_t layers = 0;
  uint32_t experts = 0;                    // per layer, the largest count
  std::atomic<uint64_t> windows{0};        // windows finished
  std::atomic<uint64_t> decode_tokens{0};  // rows of those that were generated tokens
  std::atomic<uint64_t> prefill_tokens{0};
  Doorbell window_counted{};  // rung by window_finished(); without a sleeper that is two atomic operations
};

// Of one layer; uses = hits + misses. A hit was served from the arena.
struct alignas(kCacheLine) LayerUses {
  std::atomic<uint64_t> decode_hits{0}, decode_misses{0};
  std::atomic<uint64_t> prefill_hits{0}, prefill_misses{0};
};

class UsageBoard {
 public:
  static Result<UsageBoard> create(const std::string& name, uint32_t layers, uint32_t experts);
  static Result<UsageBoard> attach(const std::string& name, uint64_t bytes, uint64_t instance_id);

  static uint64_t bytes_needed(uint32_t layers, uint32_t experts);  // of the segment

  UsageHeader& header() const;
  // (layers, experts); how often a decode / prompt token was routed there, hits and misses together.
  std::atomic<uint64_t>& decode(uint32_t layer, uint32_t expert) const;
  std::atomic<uint64_t>& prefill(uint32_t layer, uint32_t expert) const;
  LayerUses& layer(uint32_t layer) const;

  struct WindowRows {
    uint64_t prompt = 0, generated = 0;
  };
  // Counts the window's rows, after all its uses, and rings. Window loop only.
  void window_finished(WindowRows rows) const;
  const Segment& segment() const { return segment_; }

 private:
  Segment segment_;
};

}  // namespace strata::shm
