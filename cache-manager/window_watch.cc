#include "cache-manager/window_watch.h"

#include <utility>

#include "services/sys/cpus.h"

namespace strata::cache_manager {

DoorbellWatch::DoorbellWatch(std::chrono::microseconds pause) : pause_(pause), thread_([this] { run(); }) {}

DoorbellWatch::~DoorbellWatch() {
  replace(nullptr, true);
  thread_.join();
}

void DoorbellWatch::begin(std::shared_ptr<Grant> grant, std::function<void()> finished) {
  replace(std::make_shared<const Watched>(std::move(grant), std::move(finished)), false);
}

void DoorbellWatch::end() { replace(nullptr, false); }

void DoorbellWatch::replace(std::shared_ptr<const Watched> watched, bool stop) {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<const Watched> before = std::exchange(watched_, std::move(watched));
  stop_ = stop;
  generation_.fetch_add(1, std::memory_order_relaxed);
  changed_.notify_one();
  // Brings the thread back from its sleep to ask for the generation.
  if (before != nullptr) before->grant->usage.header().window_counted.wake();
}

void DoorbellWatch::run() {
  sys::name_this_thread("window-watch");
  uint64_t seen = UINT64_MAX;
  for (;;) {
    std::shared_ptr<const Watched> watched;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || (watched_ != nullptr && generation_.load(std::memory_order_relaxed) != seen);
      });
      if (stop_) return;
      watched = watched_;
      seen = generation_.load(std::memory_order_relaxed);
    }
    follow(*watched, seen);
  }
}

void DoorbellWatch::follow(const Watched& watched, uint64_t generation) {
  shm::Doorbell& bell = watched.grant->usage.header().window_counted;
  const auto over = [&] { return generation_.load(std::memory_order_relaxed) != generation; };
  uint32_t rung = bell.seq.load(std::memory_order_acquire);
  while (!over()) {
    const uint32_t now = bell.wait(rung, {.yield = true, .park_after_us = 1}, over);
    if (now == rung) continue;
    rung = now;
    watched.finished();
    if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
  }
}

}  // namespace strata::cache_manager
