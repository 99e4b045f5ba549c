#include "gpu-worker/window_loop.h"

#include <chrono>
#include <utility>

#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::gpu_worker {

using Clock = std::chrono::steady_clock;

WindowLoop::WindowLoop(const WindowLoopOptions& options)
    : options_(options),
      scheduler_({.device = options.device,
                  .counters = &counters_,
                  .context_tokens = options.context_tokens,
                  .prefill_chunk_tokens = options.prefill_chunk_tokens,
                  .store = options.store,
                  .park_after = options.park_after,
                  .wake = [this] { wake(); },
                  .on_restored = options.on_restored,
                  .finish_constraint = options.finish_constraint,
                  .on_states = options.on_states}) {
  inbox_.submitted.reserve(options_.inbox_max);
  inbox_.changes.reserve(options_.inbox_max);
  thread_ = std::thread([this] { run(); });
}

WindowLoop::~WindowLoop() { stop(); }

template <class Add>
Status WindowLoop::enqueue(Add add) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return fail(Code::kUnavailable, "the engine is stopping");
    if (inbox_.size() >= options_.inbox_max) {
      return fail(Code::kResourceExhausted, "the window loop's inbox is full ({} entries)",
                  options_.inbox_max);
    }
    add(inbox_);
  }
  wake_.notify_one();
  return {};
}

Status WindowLoop::submit(std::shared_ptr<Generation> generation) {
  return enqueue([&](Inbox& inbox) { inbox.submitted.push_back(std::move(generation)); });
}

Status WindowLoop::at_boundary(std::function<void()> apply, std::function<void()> then) {
  return enqueue([&](Inbox& inbox) { inbox.changes.push_back({std::move(apply), std::move(then)}); });
}

Status WindowLoop::begin_recording(std::shared_ptr<RoutingLog> log, std::function<void()> then) {
  return at_boundary([this, log = std::move(log)] { scheduler_.record_routing(log); }, std::move(then));
}

Status WindowLoop::end_recording(std::shared_ptr<RoutingLog> log, std::function<void()> then) {
  return at_boundary(
      [this, log = std::move(log)] {
        if (scheduler_.recording() == log) scheduler_.record_routing(nullptr);
      },
      std::move(then));
}

void WindowLoop::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WindowLoop::run() {
  sys::name_this_thread("window-loop");
  if (options_.cpu) {
    const Status pinned = sys::pin_this_thread(*options_.cpu);
    if (!pinned.ok()) obs::warn("window", "{}; the window loop runs where it likes", pinned.message());
  }
  Inbox taken;
  taken.submitted.reserve(options_.inbox_max);
  taken.changes.reserve(options_.inbox_max);
  for (bool stopping = false; !stopping;) {
    {
      std::unique_lock lock(mutex_);
      wait(lock);
      woken_ = false;
      stopping = stop_;
      std::swap(taken, inbox_);
    }
    trace_.begin("window boundary");
    boundary(taken);
    if (stopping) {
      scheduler_.end_all(Status(Code::kUnavailable, "the engine is stopping"), events_);
      post_.post(events_);  // nobody waits for what follows
      park_rest();
    } else if (!scheduler_.idle()) {
      // Replies to changes and first events go out before the window, not after it.
      post_.post(events_);
      trace_.phase("window");
      scheduler_.run_window(events_);
    }
    trace_.end();
    post_.post(events_);
  }
}

void WindowLoop::wait(std::unique_lock<std::mutex>& lock) {
  const auto due = [this] { return stop_ || woken_ || inbox_.size() > 0 || !scheduler_.idle(); };
  if (const auto at = scheduler_.wakes_at()) {
    wake_.wait_until(lock, *at, due);
  } else {
    wake_.wait(lock, due);
  }
}

void WindowLoop::park_rest() {
  const auto deadline = Clock::now() + options_.park_at_stop;
  while (scheduler_.park_rest(events_)) {
    std::unique_lock lock(mutex_);
    if (!wake_.wait_until(lock, deadline, [this] { return woken_; })) return;
    woken_ = false;
  }
}

void WindowLoop::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void WindowLoop::boundary(Inbox& inbox) {
  scheduler_.drop_cancelled(events_);
  for (auto& generation : inbox.submitted) scheduler_.admit(std::move(generation), events_);
  scheduler_.step(events_);
  if (!inbox.changes.empty()) {
    bool delays_decoding = scheduler_.decoding();
    Clock::time_point begin = Clock::now();
    for (Change& change : inbox.changes) {
      change.apply();
      events_.push_back({nullptr, {}, std::move(change.then)});
    }
    if (delays_decoding) {
      counters_.stage_ns[static_cast<std::size_t>(Stage::kExchangeWait)].fetch_add(
          static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - begin).count()),
          std::memory_order_relaxed);
    }
  }
  inbox.submitted.clear();
  inbox.changes.clear();
}

}  // namespace strata::gpu_worker
