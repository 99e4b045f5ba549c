#include "gpu-worker/parking/state_feed.h"

#include <algorithm>

#include "gpu-worker/state_layout.h"

namespace strata::gpu_worker {

void StateFeed::apply(const std::vector<StateChange>& changes) {
  const std::scoped_lock lock(mutex_);
  for (const StateChange& change : changes) {
    switch (change.what) {
      case StateChange::What::kAdded:
        states_.emplace(change.id, change);
        break;
      case StateChange::What::kSource:
        states_.at(change.id).source = change.source;
        break;
      case StateChange::What::kRemoved:
        states_.erase(change.id);
        break;
    }
  }
  std::erase_if(watchers_, [&](const std::weak_ptr<Watcher>& weak) {
    const auto watcher = weak.lock();
    if (watcher != nullptr) watcher->on_changes(changes);
    return watcher == nullptr;
  });
}

void StateFeed::watch(const std::shared_ptr<Watcher>& watcher) {
  const std::scoped_lock lock(mutex_);
  std::vector<StateChange> list;
  for (const auto& [id, state] : states_) list.push_back(state);
  watcher->on_list(list);
  watchers_.push_back(watcher);
}

StateFeedCounts StateFeed::counts() const {
  const std::scoped_lock lock(mutex_);
  StateFeedCounts counts;
  for (const auto& [id, state] : states_) {
    if (state.source == StateSource::kLive) {
      ++counts.live;
      counts.live_pages += state_pages(static_cast<uint32_t>(state.tokens.size()));
    } else {
      ++counts.checkpoints;
    }
  }
  return counts;
}

}  // namespace strata::gpu_worker
