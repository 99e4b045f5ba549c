#include "services/model/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "services/base/check.h"
#include "services/base/limits.h"

namespace strata::model {
namespace {

// How long an idle worker yields before it sleeps: longer than the pauses inside a window, shorter than
// anything a person would notice as a busy machine.
constexpr std::chrono::microseconds kYieldTime{500};
// Pieces per thread: enough that a late thread costs a quarter of its share, few enough that claiming stays
// cheap.
constexpr uint32_t kPiecesPerThread = 4;

// (job number, next piece of it) in one word, so that a piece can be claimed only while its job is the
// current one.
constexpr uint64_t ticket_of(uint32_t job, uint32_t piece) { return uint64_t{job} << 32 | piece; }
constexpr uint32_t job_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
constexpr uint32_t piece_of(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

}  // namespace

// Workers claim pieces; the caller claims too and never waits for a worker that has claimed nothing, so a
// worker that is asleep or not scheduled delays nobody.
struct Parallel::Impl {
  // The current job. Written by the caller while no piece can be claimed; a worker that reads them late
  // notices when its claim fails, hence atomics.
  std::atomic<const Job*> job{nullptr};
  std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> piece_size{1};
  std::atomic<uint32_t> pieces{0};

  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};
  alignas(kCacheLine) std::atomic<uint32_t> done{0};
  alignas(kCacheLine) std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> wake{0};  // changes when sleepers must look again
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  // Claims and runs pieces of the current job until none is left.
  void work() {
    uint64_t seen = ticket.load(std::memory_order_acquire);  // with it, the fields of its job
    while (true) {
      const Job* current = job.load(std::memory_order_relaxed);
      const uint32_t job_count = count.load(std::memory_order_relaxed);
      const uint32_t job_piece_size = piece_size.load(std::memory_order_relaxed);
      if (piece_of(seen) >= pieces.load(std::memory_order_acquire)) return;
      // Success proves that the job has not changed since `seen`: its fields stay until all of its pieces are
      // done.
      if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      const uint32_t begin = piece_of(seen) * job_piece_size;
      current->call(current->body, begin, std::min(begin + job_piece_size, job_count));
      done.fetch_add(1, std::memory_order_release);  // what the piece wrote is seen by the caller
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void worker_loop() {
    while (!stopping.load(std::memory_order_acquire)) {
      work();
      const auto sleep_at = std::chrono::steady_clock::now() + kYieldTime;
      const uint64_t seen = ticket.load(std::memory_order_acquire);
      bool changed = false;
      while (!changed && std::chrono::steady_clock::now() < sleep_at) {
        std::this_thread::yield();
        changed = ticket.load(std::memory_order_acquire) != seen || stopping.load(std::memory_order_acquire);
      }
      if (!changed) sleep(seen);
    }
  }

  // Sleeps unless the ticket has moved. Both sides are sequentially consistent: either the caller sees the
  // sleeper, or the sleeper sees the new ticket; with anything weaker a job could find all workers asleep.
  void sleep(uint64_t seen) {
    const uint32_t before = wake.load();
    sleepers.fetch_add(1);
    if (ticket.load() == seen && !stopping.load()) wake.wait(before);
    sleepers.fetch_sub(1);
  }

  void wake_sleepers() {
    if (sleepers.load() == 0) return;
    wake.fetch_add(1);
    wake.notify_all();
  }
};

Parallel::Parallel(uint32_t threads) : impl_(std::make_unique<Impl>()) {
  CHECK(threads >= 1, "{} threads", threads);
  impl_->workers.reserve(threads - 1);
  for (uint32_t i = 1; i < threads; ++i)
    impl_->workers.emplace_back([impl = impl_.get()] { impl->worker_loop(); });
}

Parallel::~Parallel() {
  impl_->stopping.store(true);
  impl_->wake.fetch_add(1);
  impl_->wake.notify_all();
  for (auto& worker : impl_->workers) worker.join();
}

uint32_t Parallel::threads() const { return static_cast<uint32_t>(impl_->workers.size()) + 1; }

void Parallel::run_pieces(uint32_t count, uint32_t grain, const Job& job) {
  if (count == 0) return;
  grain = std::max(grain, 1u);
  if (impl_->workers.empty() || count <= grain) return job.call(job.body, 0, count);

  const uint32_t wanted = threads() * kPiecesPerThread;
  const uint32_t per_piece = count / wanted + (count % wanted != 0);
  const uint32_t piece_size = (per_piece + grain - 1) / grain * grain;
  const uint32_t pieces = (count - 1) / piece_size + 1;

  Impl& impl = *impl_;
  const uint32_t number = job_of(impl.ticket.load(std::memory_order_relaxed)) + 1;
  // Closed first, so that a worker that still holds the old ticket cannot claim with the new number of pieces
  // in hand: who sees the new `pieces` (release, acquire) sees that the ticket has moved, too.
  impl.ticket.store(ticket_of(number, UINT32_MAX), std::memory_order_relaxed);
  impl.job.store(&job, std::memory_order_relaxed);
  impl.count.store(count, std::memory_order_relaxed);
  impl.piece_size.store(piece_size, std::memory_order_relaxed);
  impl.done.store(0, std::memory_order_relaxed);
  impl.pieces.store(pieces, std::memory_order_release);
  impl.ticket.store(ticket_of(number, 0));  // opens the job
  impl.wake_sleepers();
  impl.work();
  while (impl.done.load(std::memory_order_acquire) < pieces) std::this_thread::yield();
}

}  // namespace strata::model
