#include "cache-manager/usage_reader.h"

#include <utility>

namespace strata::cache_manager {

void UsageReader::begin(const shm::UsageBoard& board) {
  const shm::UsageHeader& header = board.header();
  windows_ = header.windows.load(std::memory_order_acquire);
  decode_.tokens = header.decode_tokens.load(std::memory_order_relaxed);
  prefill_.tokens = header.prefill_tokens.load(std::memory_order_relaxed);
  begin(decode_, board, &shm::UsageBoard::decode);
  begin(prefill_, board, &shm::UsageBoard::prefill);
}

UsageReader::Delta UsageReader::take(const shm::UsageBoard& board) {
  const shm::UsageHeader& header = board.header();
  // Acquire: pairs with the window loop's release; the window's tokens and uses are seen with it.
  const uint64_t windows = header.windows.load(std::memory_order_acquire);
  if (windows == windows_) return {};
  Delta delta{.windows = windows - std::exchange(windows_, windows), .usage = {}};
  const uint64_t decode_tokens = header.decode_tokens.load(std::memory_order_relaxed);
  const uint64_t prefill_tokens = header.prefill_tokens.load(std::memory_order_relaxed);
  delta.usage.decode_tokens = take(decode_, decode_tokens, board, &shm::UsageBoard::decode);
  delta.usage.prefill_tokens = take(prefill_, prefill_tokens, board, &shm::UsageBoard::prefill);
  if (delta.usage.decode_tokens > 0) delta.usage.decode_uses = decode_.uses;
  if (delta.usage.prefill_tokens > 0) delta.usage.prefill_uses = prefill_.uses;
  return delta;
}

void UsageReader::begin(Side& side, const shm::UsageBoard& board, Counter counter) {
  const shm::UsageHeader& header = board.header();
  side.seen.assign(std::size_t{header.layers} * header.experts, 0);
  side.uses.assign(side.seen.size(), 0);
  read(side, board, counter);
}

// Returns the new tokens; without any the counters are not read: most windows have one kind of tokens only.
uint64_t UsageReader::take(Side& side, uint64_t tokens, const shm::UsageBoard& board, Counter counter) {
  if (tokens == side.tokens) return 0;
  read(side, board, counter);
  return tokens - std::exchange(side.tokens, tokens);
}

void UsageReader::read(Side& side, const shm::UsageBoard& board, Counter counter) {
  const shm::UsageHeader& header = board.header();
  std::size_t index = 0;
  for (uint32_t layer = 0; layer < header.layers; ++layer) {
    for (uint32_t expert = 0; expert < header.experts; ++expert, ++index) {
      const uint64_t now = (board.*counter)(layer, expert).load(std::memory_order_relaxed);
      side.uses[index] = static_cast<uint32_t>(now - std::exchange(side.seen[index], now));
    }
  }
}

}  // namespace strata::cache_manager
