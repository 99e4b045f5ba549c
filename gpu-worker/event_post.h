#pragma once
// Takes what the window loop has to say to the outside and says it on a thread of its own, so that no
// listener, log or gRPC call can hold up a window. The loop hands over one batch per window: one short lock,
// at most one wake-up.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu-worker/generation.h"

namespace strata::gpu_worker {

// An event for a listener, or, without one, a call (the reply to a residency request, a log line).
struct PostedEvent {
  std::shared_ptr<GenerationListener> listener;
  GenerationEvent event;
  std::function<void()> call;
};

class EventPost {
 public:
  EventPost();
  ~EventPost();  // delivers what is still there, then ends the thread
  EventPost(const EventPost&) = delete;
  EventPost& operator=(const EventPost&) = delete;

  // Moves the batch's events out; the vector is left empty and keeps its memory. Unbounded by itself: what a
  // generation can say is bounded by its context, and calls by the loop's inbox.
  void post(std::vector<PostedEvent>& batch);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<PostedEvent> queue_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace strata::gpu_worker
