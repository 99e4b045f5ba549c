#pragma once
// The messages of States.Watch and Snapshots.Watch as events of a feed. One reader per stream. kDataLoss: the
// message breaks the protocol, and so nothing that follows can be trusted; nothing: of a newer peer.

#include <optional>

#include "gateway/index/state_feed.h"
#include "strata/v1/snapshots.pb.h"
#include "strata/v1/states.pb.h"

namespace strata::gateway {

class StatesReader {
 public:
  Result<std::optional<FeedEvent>> read(const v1::WatchStatesResponse& message);

 private:
  uint64_t instance_ = 0;  // makes the engine's numbers ids that no other process uses
};

class SnapshotsReader {
 public:
  Result<std::optional<FeedEvent>> read(const v1::WatchSnapshotsResponse& message);

 private:
  bool begun_ = false;
};

}  // namespace strata::gateway
