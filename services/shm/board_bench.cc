// Round trip of an empty request over a board: ring, notice, answer, notice. Two threads stand for the two
// processes; what is measured (cache lines travelling, or futex sleeps) is the same.

#include <benchmark/benchmark.h>

#include <atomic>
#include <thread>

#include "services/shm/board.h"

namespace strata::shm {
namespace {

void round_trip(benchmark::State& state, const WaitPolicy& policy) {
  const std::string name = segment_name("bench000", "board", random_instance_id());
  auto board = Board::create(name, {.hidden = 2560, .tokens_max = 128, .pairs_max = 1280});
  if (!board) {
    state.SkipWithError(board.error().message().c_str());
    return;
  }
  BoardHeader& header = board->header();
  std::atomic<bool> stopping{false};
  std::thread worker([&] {
    const std::function<bool()> stop = [&] { return stopping.load(std::memory_order_relaxed); };
    uint32_t seen = 0;
    while (!stop()) {
      const uint32_t now = header.work.wait(seen, policy, stop);
      if (now == seen) continue;
      seen = now;
      header.done_ticket.store(header.request.ticket, std::memory_order_release);
      header.done.ring();
    }
  });
  const std::function<bool()> never;
  uint64_t ticket = 0;
  for (auto _ : state) {
    const uint32_t seen = header.done.seq.load(std::memory_order_acquire);
    header.request.ticket = ++ticket;
    header.work.ring();
    header.done.wait(seen, policy, never);
  }
  stopping = true;
  worker.join();
}

BENCHMARK_CAPTURE(round_trip, spin, WaitPolicy{.yield = false, .park_after_us = 2000})->UseRealTime();
BENCHMARK_CAPTURE(round_trip, yield, WaitPolicy{.yield = true, .park_after_us = 2000})->UseRealTime();
BENCHMARK_CAPTURE(round_trip, sleep, WaitPolicy{.yield = true, .park_after_us = 1})->UseRealTime();

}  // namespace
}  // namespace strata::shm

BENCHMARK_MAIN();
