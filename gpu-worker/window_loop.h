#pragma once
// The window loop: one dedicated thread that owns the sequences and the residency. Everything reaches it
// through one bounded inbox and is applied at a window boundary, in this order: cancellations, new
// generations, changes (residency); then it runs the next window. With nothing to run it sleeps. What it has
// to say goes through the event thread (event_post.h).

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "gpu-worker/event_post.h"
#include "gpu-worker/generation.h"
#include "gpu-worker/loop_counters.h"
#include "gpu-worker/watchdog.h"
#include "gpu-worker/window_scheduler.h"

namespace strata::gpu_worker {

struct WindowLoopOptions {
  Device* device = nullptr;
  uint32_t context_tokens = 0;
  uint32_t prefill_chunk_tokens = 0;
  uint32_t inbox_max = 256;
  std::optional<uint32_t> cpu = {};  // where its thread is pinned
  // As in WindowSchedulerOptions.
  ParkedStore* store = nullptr;
  std::chrono::milliseconds park_after{0};
  std::chrono::milliseconds park_at_stop{0};
  std::function<void(std::shared_ptr<Generation>, std::function<void()> then)> finish_constraint = {};
  std::function<void(double)> on_restored = {};
  std::function<void(std::vector<StateChange>)> on_states = {};
};

class WindowLoop {
 public:
  explicit WindowLoop(const WindowLoopOptions& options);
  ~WindowLoop();  // stop()
  WindowLoop(const WindowLoop&) = delete;
  WindowLoop& operator=(const WindowLoop&) = delete;

  // Any thread. The listener gets at least one event: a PromptProgressed on admission, or the end.
  // kResourceExhausted: the inbox is full. kUnavailable: stopped. The listener then gets nothing.
  Status submit(std::shared_ptr<Generation> generation);
  // Any thread. `apply` runs on the loop's thread at the next window boundary, at once when no window runs;
  // `then` afterwards on the event thread. The same errors.
  Status at_boundary(std::function<void()> apply, std::function<void()> then);

  // Any thread: `log` gets the rows of every window from the next boundary on, in place of another one that
  // did; end_recording() ends it if it still is the one. `then` afterwards on the event thread. The same
  // errors.
  Status begin_recording(std::shared_ptr<RoutingLog> log, std::function<void()> then);
  Status end_recording(std::shared_ptr<RoutingLog> log, std::function<void()> then);

  // Ends running generations with kUnavailable, applies what is in the inbox, parks what is kept and not
  // parked yet, for as long as park_at_stop at most, delivers all events and joins.
  void stop();

  const LoopCounters& counters() const { return counters_; }
  const WindowTrace& trace() const { return trace_; }
  // With a store only.
  const TransferCounters& transfers() const { return scheduler_.transfers(); }

 private:
  struct Change {
    std::function<void()> apply, then;
  };
  struct Inbox {
    std::vector<std::shared_ptr<Generation>> submitted;
    std::vector<Change> changes;
    std::size_t size() const { return submitted.size() + changes.size(); }
  };

  void run();
  void wait(std::unique_lock<std::mutex>& lock);
  void wake();
  void boundary(Inbox& inbox);
  void park_rest();
  template <class Add>
  Status enqueue(Add add);

  WindowLoopOptions options_;
  LoopCounters counters_;
  WindowTrace trace_;

  std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;
  bool stop_ = false;
  bool woken_ = false;

  WindowScheduler scheduler_;        // the loop's thread only; wakes the loop from others
  std::vector<PostedEvent> events_;  // the loop's thread only
  EventPost post_;
  std::thread thread_;
};

}  // namespace strata::gpu_worker
