#include "cache-manager/usage_reader.h"

#include <utility>

namespace strata::cache_manager {

void UsageReader::begin(const shm::UsageBoard& board) {
  const shm::UsageHeader& header = board.header();
  seen_.assign(std::size_t{header.layers} * header.experts, 0);
  uses_.assign(seen_.size(), 0);
  decode_tokens_ = header.decode_tokens.load(std::memory_order_relaxed);
  read_uses(board);
}

UsageReader::Delta UsageReader::take(const shm::UsageBoard& board) {
  uint64_t decode_tokens = board.header().decode_tokens.load(std::memory_order_relaxed);
  // Uses are counted layer by layer, tokens when the window is over: what an unfinished window has counted
  // waits for its tokens.
  if (decode_tokens == decode_tokens_) return {};
  read_uses(board);
  return {.decode_tokens = decode_tokens - std::exchange(decode_tokens_, decode_tokens),
          .decode_uses = uses_};
}

void UsageReader::read_uses(const shm::UsageBoard& board) {
  const shm::UsageHeader& header = board.header();
  std::size_t index = 0;
  for (uint32_t layer = 0; layer < header.layers; ++layer) {
    for (uint32_t expert = 0; expert < header.experts; ++expert, ++index) {
      uint64_t now = board.decode(layer, expert).load(std::memory_order_relaxed);
      uses_[index] = static_cast<uint32_t>(now - std::exchange(seen_[index], now));
    }
  }
}

}  // namespace strata::cache_manager
