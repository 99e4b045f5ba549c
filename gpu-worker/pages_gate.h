#pragma once
// Lets a window begin while pages of a sequence in it are still on their way to the device: the layers in
// front of the first attention layer need the fixed part of a state only. The device waits in front of the
// first layer that touches pages, and whoever uses what the window gave looks first whether they came.

#include <atomic>
#include <utility>

#include "services/base/check.h"
#include "services/base/status.h"

namespace strata::gpu_worker {

class PagesGate {
 public:
  // By whoever copies, once and always: all pages are on the device, or why they never will be.
  void open(Status status) {
    CHECK(!open_.load(std::memory_order_relaxed));
    status_ = std::move(status);
    // Makes the pages, written by this thread, and the status visible to who waits.
    open_.store(true, std::memory_order_release);
    open_.notify_all();
  }
  // Any thread, any number of times. No longer than it takes to copy the rest of one state.
  const Status& wait() const {
    open_.wait(false, std::memory_order_acquire);
    return status_;
  }

 private:
  std::atomic<bool> open_{false};
  Status status_;
};

}  // namespace strata::gpu_worker
