#pragma once
// Says when windows have finished, so that the exchanges follow the windows and an idle system is left alone.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cache-manager/engine_link.h"

namespace strata::cache_manager {

class WindowWatch {
 public:
  virtual ~WindowWatch() = default;
  // From now on calls `finished` after a window has finished, on any thread; windows that finish meanwhile
  // are told together. Replaces what was watched before.
  virtual void begin(std::shared_ptr<Grant> grant, std::function<void()> finished) = 0;
  // A call of `finished` may still be on its way.
  virtual void end() = 0;
};

// A thread that sleeps on the usage board's doorbell. The window loop pays one futex call per window for it,
// nothing while the thread is awake. After each call it pauses for `pause`: looks cost something, too.
class DoorbellWatch final : public WindowWatch {
 public:
  explicit DoorbellWatch(std::chrono::microseconds pause);
  ~DoorbellWatch() override;
  void begin(std::shared_ptr<Grant> grant, std::function<void()> finished) override;
  void end() override;

 private:
  struct Watched {
    std::shared_ptr<Grant> grant;
    std::function<void()> finished;
  };
  void replace(std::shared_ptr<const Watched> watched, bool stop);
  void run();
  void follow(const Watched& watched, uint64_t generation);

  const std::chrono::microseconds pause_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Watched> watched_;  // null: nothing
  bool stop_ = false;
  // Counts changes of the above, for the thread to ask without the mutex while it waits for a ring.
  std::atomic<uint64_t> generation_{0};
  std::thread thread_;
};

}  // namespace strata::cache_manager
