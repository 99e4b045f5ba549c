#pragma once
// Reads the usage board's ever-growing counters as differences since the last look.

#include <cstdint>
#include <span>
#include <vector>

#include "services/residency/policy.h"
#include "services/shm/usage_board.h"

namespace strata::cache_manager {

class UsageReader {
 public:
  // The counters of a board begin where they stand when it is first looked at: what was counted before
  // belongs to somebody who has seen it already.
  void begin(const shm::UsageBoard& board);

  // What the windows that finished since the last look have used; `usage` is valid until the next call.
  // Uses are counted layer by layer, tokens when the window is over: what an unfinished window has counted
  // waits for its tokens.
  struct Delta {
    uint64_t windows = 0;
    residency::Usage usage;
  };
  Delta take(const shm::UsageBoard& board);

 private:
  using Counter = std::atomic<uint64_t>& (shm::UsageBoard::*)(uint32_t layer, uint32_t expert) const;
  // Decode and prefill uses, each with the tokens that they come from.
  struct Side {
    std::vector<uint64_t> seen;  // (layers, experts)
    std::vector<uint32_t> uses;  // (layers, experts) since the last look
    uint64_t tokens = 0;
  };
  static void begin(Side& side, const shm::UsageBoard& board, Counter counter);
  static void read(Side& side, const shm::UsageBoard& board, Counter counter);
  static uint64_t take(Side& side, uint64_t tokens, const shm::UsageBoard& board, Counter counter);

  uint64_t windows_ = 0;
  Side decode_, prefill_;
};

}  // namespace strata::cache_manager
