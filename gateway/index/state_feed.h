#pragma once
// What the keepers of states say of them: the gpu-worker of those on its device (States.Watch), the cache
// manager of those in its store (Snapshots.Watch). Plain structs and a callback, no gRPC types; the real
// feeds are grpc_state_feeds.h, tests use scripted ones.

#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "gateway/conversations/prefix_index.h"

namespace strata::gateway {

// What was said before is forgotten; all there is follows.
struct FeedBegin {
  // Of the keeper; 0: it keeps nothing yet, because nobody has told it of what its states are made.
  uint64_t instance = 0;
  std::optional<IndexIdentity> identity = {};  // of all its states; nothing: nobody knows yet
};

struct FeedState {
  SnapshotId id = {};
  Source source = Source::kRam;
  NamespaceId owner = {};  // shared_namespace() if it is a root that was declared shared
  // The tokens are the first base_tokens of `base`, a state of this feed, and then these. base is zero: these
  // are all. A state that is known already brings none of them: only its source has changed.
  SnapshotId base = {};
  uint32_t base_tokens = 0;
  std::vector<int32_t> tokens = {};
  std::vector<TokenRange> generated = {};
};

struct FeedRemoved {
  SnapshotId id = {};
  Removal why = Removal::kEvicted;
};

// Of the list after FeedBegin.
struct FeedComplete {};

// Nothing follows. The keeper is away (kUnavailable), keeps no states (kUnimplemented), or said something
// that makes no sense (kDataLoss).
struct FeedEnded {
  Status status;
};

using FeedEvent = std::variant<FeedBegin, FeedState, FeedRemoved, FeedComplete, FeedEnded>;

class StateFeed {
 public:
  virtual ~StateFeed() = default;
  // Asks for all states and what changes. Calls back on a thread of its own, never before it returns, until
  // FeedEnded. One watch at a time.
  virtual void watch(std::function<void(FeedEvent)> on_event) = 0;
};

}  // namespace strata::gateway
