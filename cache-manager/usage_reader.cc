#include "cache-manager/usage_reader.h"

#include <utility>

namespace strata::cache_manager {

void UsageReader::begin(const shm::UsageBoard& board) {
  const shm::UsageHeader& header = board.header();
  seen_.assign(std::size_t{header.layers} * header.experts, 0);
  uses_.assign(seen_.size(), 0);
  decode_tokens_ = 0;
  take(board);
}

UsageReader::Delta UsageReader::take(const shm::UsageBoard& board) {
  const shm::UsageHeader& header = board.header();
  Delta delta;
  uint64_t decode_tokens = header.decode_tokens.load(std::memory_order_relaxed);
  delta.decode_tokens = decode_tokens - std::exchange(decode_tokens_, decode_tokens);
  std::size_t index = 0;
  for (uint32_t layer = 0; layer < header.layers; ++layer) {
    for (uint32_t expert = 0; expert < header.experts; ++expert, ++index) {
      uint64_t now = board.decode(layer, expert).load(std::memory_order_relaxed);
      uses_[index] = static_cast<uint32_t>(now - std::exchange(seen_[index], now));
    }
  }
  delta.decode_uses = uses_;
  return delta;
}

}  // namespace strata::cache_manager
