#pragma once
// Between the words of snapshots.proto and those of the snapshot library, for everybody who speaks it.

#include <optional>
#include <vector>

#include "services/snapshot/types.h"
#include "strata/v1/snapshots.pb.h"

namespace strata::rpc {

// The wire's kinds are one higher: its 0 is "unspecified".
inline constexpr int kSnapshotKindOffset =
    v1::SNAPSHOT_KIND_ROOT - static_cast<int>(snapshot::SnapshotKind::kRoot);

constexpr v1::SnapshotKind to_wire(snapshot::SnapshotKind kind) {
  return static_cast<v1::SnapshotKind>(static_cast<int>(kind) + kSnapshotKindOffset);
}
static_assert(to_wire(snapshot::SnapshotKind::kTurn) == v1::SNAPSHOT_KIND_TURN);
static_assert(to_wire(snapshot::SnapshotKind::kBeforeLastUser) == v1::SNAPSHOT_KIND_BEFORE_LAST_USER);
static_assert(to_wire(snapshot::SnapshotKind::kInterval) == v1::SNAPSHOT_KIND_INTERVAL);
static_assert(to_wire(snapshot::SnapshotKind::kEnd) == v1::SNAPSHOT_KIND_END);

// Nothing: unspecified, or a newer version's.
constexpr std::optional<snapshot::SnapshotKind> kind_from_wire(v1::SnapshotKind kind) {
  const int here = static_cast<int>(kind) - kSnapshotKindOffset;
  if (here < 0 || here >= static_cast<int>(snapshot::kSnapshotKinds)) return std::nullopt;
  return static_cast<snapshot::SnapshotKind>(here);
}

using WireRanges = google::protobuf::RepeatedPtrField<v1::TokenRange>;

inline void add_ranges(const std::vector<snapshot::TokenRange>& ranges, WireRanges& to) {
  for (const snapshot::TokenRange& range : ranges) {
    v1::TokenRange& added = *to.Add();
    added.set_begin(range.begin);
    added.set_end(range.end);
  }
}

inline std::vector<snapshot::TokenRange> ranges_from_wire(const WireRanges& from) {
  std::vector<snapshot::TokenRange> ranges;
  for (const v1::TokenRange& range : from) ranges.push_back({.begin = range.begin(), .end = range.end()});
  return ranges;
}

}  // namespace strata::rpc
