#pragma once
// The states that are kept on the device, for those who want to know (States.Watch): all of them first, then
// every change in order. The window loop's changes come on the event thread; a watcher that does not read
// holds up nobody.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu-worker/kept_states.h"

namespace strata::gpu_worker {

// What the states take, any thread.
struct StateFeedCounts {
  uint32_t live = 0;
  uint32_t checkpoints = 0;
  uint64_t live_pages = 0;
};

class StateFeed {
 public:
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // Under the feed's lock: must not call it. `list`: all there is, before any change.
    virtual void on_list(const std::vector<StateChange>& list) = 0;
    virtual void on_changes(const std::vector<StateChange>& changes) = 0;
  };

  void apply(const std::vector<StateChange>& changes);
  // Until the watcher is gone.
  void watch(const std::shared_ptr<Watcher>& watcher);
  StateFeedCounts counts() const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, StateChange> states_;  // as added, with their present source
  std::vector<std::weak_ptr<Watcher>> watchers_;
};

}  // namespace strata::gpu_worker
