#pragma once
// Reads the usage board's ever-growing counters as differences since the last look.

#include <cstdint>
#include <span>
#include <vector>

#include "services/shm/usage_board.h"

namespace strata::cache_manager {

class UsageReader {
 public:
  // The counters of a board begin where they stand when it is first looked at: what was counted before
  // belongs to somebody who has seen it already.
  void begin(const shm::UsageBoard& board);

  struct Delta {
    uint64_t decode_tokens = 0;
    std::span<const uint32_t> decode_uses;  // (layers, experts), until the next call; empty without tokens
  };
  Delta take(const shm::UsageBoard& board);

 private:
  void read_uses(const shm::UsageBoard& board);

  std::vector<uint64_t> seen_;
  std::vector<uint32_t> uses_;
  uint64_t decode_tokens_ = 0;
};

}  // namespace strata::cache_manager
