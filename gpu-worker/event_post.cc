#include "gpu-worker/event_post.h"

#include <iterator>

#include "services/sys/cpus.h"

namespace strata::gpu_worker {

EventPost::EventPost() : thread_([this] { run(); }) {}

EventPost::~EventPost() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  ready_.notify_one();
  thread_.join();
}

void EventPost::post(std::vector<PostedEvent>& batch) {
  if (batch.empty()) return;
  {
    std::lock_guard lock(mutex_);
    queue_.insert(queue_.end(), std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
  }
  batch.clear();
  ready_.notify_one();
}

void EventPost::run() {
  sys::name_this_thread("events");
  std::vector<PostedEvent> batch;
  std::unique_lock lock(mutex_);
  for (;;) {
    ready_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    batch.swap(queue_);
    lock.unlock();
    for (PostedEvent& posted : batch) {
      if (posted.listener != nullptr) {
        posted.listener->on_event(std::move(posted.event));
      } else {
        posted.call();
      }
    }
    batch.clear();
    lock.lock();
  }
}

}  // namespace strata::gpu_worker
