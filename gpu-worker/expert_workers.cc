#include "gpu-worker/expert_workers.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

namespace strata::gpu_worker {
namespace {

using Clock = std::chrono::steady_clock;
using WorkerList = std::vector<std::shared_ptr<AttachedWorker>>;

// The doorbell is looked at all the time; whether the process still lives, which is a system call, this
// often.
constexpr uint32_t kLivenessSliceUs = 2000;
// A killed process is gone in milliseconds. One that hangs in the kernel (a page fault on a dead disk) may
// take long, but runs no instruction of its own any more, so the window goes on without it.
constexpr uint32_t kKillTimeoutMs = 5000;
// Progress counts what a thread takes at once, at most a whole expert. One that half a prompt chunk was
// routed to takes long, and where many are asked for at once the weights of each come slower (page faults,
// shared bandwidth): the budget grows with the pairs of the request.
constexpr uint32_t kPairsPerBudget = 64;
// Well below engine.window_budget_ms: a lost worker must not look like a stuck window.
constexpr uint32_t kBudgetMaxMs = 25000;
#ifdef STRATA_SANITIZED
constexpr uint32_t kBudgetFactor = 10;
#else
constexpr uint32_t kBudgetFactor = 1;
#endif

std::chrono::milliseconds stall_budget(uint32_t lost_after_ms, uint32_t pair_count) {
  const uint64_t scaled = uint64_t{lost_after_ms} * (1 + pair_count / kPairsPerBudget);
  return std::chrono::milliseconds(std::min<uint64_t>(scaled, std::max(lost_after_ms, kBudgetMaxMs)) *
                                   kBudgetFactor);
}

// Acquire: the parts of that ticket and of all before it are visible.
bool is_done(const shm::BoardHeader& header, uint64_t ticket) {
  return header.done_ticket.load(std::memory_order_acquire) >= ticket;
}

std::string expected_name(uint32_t index) { return fmt::format("cpu-expert-worker-{}", index); }

}  // namespace

struct ExpertWorkers::Impl {
  ExpertWorkersOptions options;
  mutable std::mutex mutex;
  WorkerList attached;  // under the mutex
  std::atomic<bool> changed{
      false};                // attached differs from in_window; a hint, so relaxed: the mutex orders the rest
  WorkerList in_window;      // window loop only
  bool window_open = false;  // likewise: the boards say so

  // The name goes, so that nobody attaches any more, and the worker is told. The mapping stays as long as a
  // window may hold pointers into it.
  void retire(AttachedWorker& worker, const std::string& reason) {
    {
      std::lock_guard lock(mutex);
      if (worker.retired.exchange(true, std::memory_order_relaxed)) return;
      if (worker.retired_because.empty()) worker.retired_because = reason;
      worker.board.segment().unlink();
      std::erase_if(attached, [&](const auto& other) { return other.get() == &worker; });
      changed.store(true, std::memory_order_relaxed);
    }
    if (worker.on_retired) worker.on_retired();
  }

  // The reason is noted before the kill, whose first consequence is that the stream ends.
  void lose(AttachedWorker& worker, const std::string& reason) {
    {
      std::lock_guard lock(mutex);
      worker.retired_because = reason;
    }
    worker.process.kill_and_wait(kKillTimeoutMs);
    retire(worker, reason);
  }
};

ExpertWorkers::ExpertWorkers(const ExpertWorkersOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
}

ExpertWorkers::~ExpertWorkers() {
  const WorkerList left = impl_->attached;
  for (const auto& worker : left) impl_->retire(*worker, "the gpu-worker stops");
}

Result<std::shared_ptr<AttachedWorker>> ExpertWorkers::attach(const std::string& name, uint32_t pid,
                                                              OnRetired on_retired) {
  auto worker = std::make_shared<AttachedWorker>();
  worker->name = name;
  worker->on_retired = std::move(on_retired);
  TRY(worker->process, sys::ProcessHandle::open(pid));
  const std::string segment = shm::segment_name(impl_->options.run_id, "board", shm::random_instance_id());
  TRY(worker->board, shm::Board::create(segment, impl_->options.geometry));

  std::shared_ptr<AttachedWorker> replaced;
  {
    std::lock_guard lock(impl_->mutex);
    const auto same_name = std::ranges::find(impl_->attached, name, &AttachedWorker::name);
    if (same_name != impl_->attached.end()) replaced = *same_name;
    if (replaced == nullptr && impl_->attached.size() >= kExpertWorkersMax) {
      return fail(Code::kResourceExhausted, "{} expert workers are attached, that is all there can be",
                  kExpertWorkersMax);
    }
    // In one step: a window boundary in between must not see one worker more than there can be.
    if (replaced != nullptr) {
      *same_name = worker;
    } else {
      const auto after = std::ranges::upper_bound(impl_->attached, name, {}, &AttachedWorker::name);
      impl_->attached.insert(after, worker);
    }
    impl_->changed.store(true, std::memory_order_relaxed);
  }
  if (replaced != nullptr) impl_->retire(*replaced, fmt::format("process {} took its place", pid));
  return worker;
}

std::string ExpertWorkers::detach(const std::shared_ptr<AttachedWorker>& worker) {
  impl_->retire(*worker, "its stream ended");
  std::lock_guard lock(impl_->mutex);
  return worker->retired_because;
}

std::vector<std::string> ExpertWorkers::missing() const {
  std::lock_guard lock(impl_->mutex);
  std::vector<std::string> names;
  for (uint32_t index = 0; index < impl_->options.expected; ++index) {
    std::string name = expected_name(index);
    if (std::ranges::find(impl_->attached, name, &AttachedWorker::name) == impl_->attached.end())
      names.push_back(std::move(name));
  }
  return names;
}

const WorkerList& ExpertWorkers::at_window_boundary() {
  for (const auto& worker : impl_->in_window) {
    if (worker->process.gone()) impl_->retire(*worker, "its process ended");
  }
  if (impl_->changed.exchange(false, std::memory_order_relaxed)) {
    std::lock_guard lock(impl_->mutex);
    impl_->in_window = impl_->attached;
  }
  if (!impl_->options.keep_awake) return impl_->in_window;
  impl_->window_open = true;
  for (const auto& worker : impl_->in_window) {
    shm::BoardHeader& header = worker->board.header();
    // Relaxed: nothing is read on its strength.
    header.window_open.store(1, std::memory_order_relaxed);
    header.work.wake();
  }
  return impl_->in_window;
}

void ExpertWorkers::window_over() {
  if (!std::exchange(impl_->window_open, false)) return;
  for (const auto& worker : impl_->in_window)
    worker->board.header().window_open.store(0, std::memory_order_relaxed);
}

const WorkerList& ExpertWorkers::in_window() const { return impl_->in_window; }

bool ExpertWorkers::is_lost(AttachedWorker& worker, uint32_t pair_count, ProgressWatch& watch) {
  if (worker.retired.load(std::memory_order_relaxed)) return true;
  if (worker.process.gone()) {
    impl_->retire(worker, "its process ended");
    return true;
  }
  const auto budget = stall_budget(impl_->options.lost_after_ms, pair_count);
  const uint64_t now = worker.board.header().all_progress();
  if (now != watch.progress) {
    watch.progress = now;
    watch.moved_at = Clock::now();
  } else if (Clock::now() - watch.moved_at >= budget) {
    impl_->lose(worker, fmt::format("no progress for {} ms, killed", budget.count()));
    return true;
  }
  return false;
}

bool ExpertWorkers::wait_done(AttachedWorker& worker, uint64_t ticket, uint32_t pair_count) {
  shm::BoardHeader& header = worker.board.header();
  // Read after the first slice at the earliest: most waits are over by then, and until then the threads write
  // those lines all the time.
  ProgressWatch watch;
  for (;;) {
    // The bell is read before the ticket: a ring between the two ends the wait at once.
    const uint32_t seen = header.done.seq.load(std::memory_order_acquire);
    if (is_done(header, ticket)) return true;
    header.done.wait(seen, impl_->options.wait, {}, kLivenessSliceUs);
    if (is_done(header, ticket)) return true;
    const bool was_retired = worker.retired.load(std::memory_order_relaxed);
    // It may have finished this request with its last breath.
    if (is_lost(worker, pair_count, watch)) return !was_retired && is_done(header, ticket);
  }
}

}  // namespace strata::gpu_worker
