#include "gateway/index/state_messages.h"

#include "services/rpc/snapshot_words.h"
#include "services/snapshot/eviction_log.h"

namespace strata::gateway {

namespace {

Result<snapshot::Hash128> id_of(std::string_view field, const std::string& bytes) {
  auto id = snapshot::Hash128::from_bytes(bytes);
  if (!id) return fail(Code::kDataLoss, "{}: {}", field, id.error().message());
  return *id;
}

// Empty: nobody knows yet.
Result<std::optional<IndexIdentity>> identity_of(const std::string& bytes) {
  if (bytes.empty()) return std::nullopt;
  auto identity = snapshot::parse_identity(std::as_bytes(std::span(bytes)));
  if (!identity) return fail(Code::kDataLoss, "begin.identity: {}", identity.error().message());
  return index_identity(*identity);
}

template <class Begin>
Result<std::optional<FeedEvent>> begin_of(const Begin& begin) {
  TRY(auto identity, identity_of(begin.identity()));
  if (begin.instance_id() == 0 && identity) return fail(Code::kDataLoss, "begin.instance_id is 0");
  return FeedBegin{.instance = begin.instance_id(), .identity = identity};
}

template <class Added>
void copy_tokens(const Added& added, FeedState& state) {
  state.tokens.assign(added.tokens().begin(), added.tokens().end());
  state.generated = rpc::ranges_from_wire(added.generated());
}

}  // namespace

Result<std::optional<FeedEvent>> StatesReader::read(const v1::WatchStatesResponse& message) {
  if (message.event_case() == v1::WatchStatesResponse::kBegin) {
    instance_ = message.begin().instance_id();
    if (instance_ == 0) return fail(Code::kDataLoss, "begin.instance_id is 0");
    return begin_of(message.begin());
  }
  if (instance_ == 0) return fail(Code::kDataLoss, "states come before begin");
  switch (message.event_case()) {
    case v1::WatchStatesResponse::kAdded: {
      const v1::StateAdded& added = message.added();
      FeedState state{.id = {.high = instance_, .low = added.id()}};
      if (added.source() == v1::STATE_SOURCE_RUNNING) {
        state.source = Source::kRunning;
      } else if (added.source() == v1::STATE_SOURCE_LIVE) {
        state.source = Source::kLive;
      } else if (added.source() == v1::STATE_SOURCE_CHECKPOINT) {
        state.source = Source::kCheckpoint;
      } else {
        return fail(Code::kDataLoss, "added.source {} of state {}", static_cast<int>(added.source()),
                    added.id());
      }
      TRY(state.owner, id_of("added.name_space", added.name_space()));
      if (added.shared()) state.owner = shared_namespace();
      copy_tokens(added, state);
      return std::optional<FeedEvent>(std::move(state));
    }
    case v1::WatchStatesResponse::kRemoved:
      return FeedRemoved{.id = {.high = instance_, .low = message.removed().id()},
                         .why = message.removed().taken() ? Removal::kConsumed : Removal::kEvicted};
    case v1::WatchStatesResponse::kComplete:
      return FeedComplete{};
    default:
      return std::nullopt;
  }
}

Result<std::optional<FeedEvent>> SnapshotsReader::read(const v1::WatchSnapshotsResponse& message) {
  if (message.event_case() == v1::WatchSnapshotsResponse::kBegin) {
    begun_ = true;
    return begin_of(message.begin());
  }
  if (!begun_) return fail(Code::kDataLoss, "snapshots come before begin");
  switch (message.event_case()) {
    case v1::WatchSnapshotsResponse::kAdded: {
      const v1::SnapshotAdded& added = message.added();
      const v1::Snapshot& snapshot = added.snapshot();
      FeedState state;
      TRY(state.id, id_of("added.snapshot.id", snapshot.id()));
      TRY(state.owner, id_of("added.snapshot.name_space", snapshot.name_space()));
      if (!snapshot.in_memory() && !snapshot.on_disk()) {
        return fail(Code::kDataLoss, "snapshot {} is neither in memory nor on disk", state.id.text());
      }
      state.source = snapshot.in_memory() ? Source::kRam : Source::kDisk;
      if (!added.base().empty()) {
        TRY(state.base, id_of("added.base", added.base()));
      }
      state.base_tokens = added.base_tokens();
      copy_tokens(added, state);
      return std::optional<FeedEvent>(std::move(state));
    }
    case v1::WatchSnapshotsResponse::kRemoved: {
      FeedRemoved removed;
      TRY(removed.id, id_of("removed.id", message.removed().id()));
      const bool asked_for =
          message.removed().cause() == snapshot::cause_name(snapshot::EvictionCause::kDropped);
      removed.why = asked_for ? Removal::kConsumed : Removal::kEvicted;
      return removed;
    }
    case v1::WatchSnapshotsResponse::kComplete:
      return FeedComplete{};
    default:
      return std::nullopt;
  }
}

}  // namespace strata::gateway
