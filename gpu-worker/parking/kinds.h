#pragma once
// Between the words of snapshots.proto and those of the snapshot library.

#include <vector>

#include "services/snapshot/types.h"
#include "strata/v1/snapshots.pb.h"

namespace strata::gpu_worker {

inline v1::SnapshotKind kind_to_wire(snapshot::SnapshotKind kind) {
  switch (kind) {
    case snapshot::SnapshotKind::kRoot:
      return v1::SNAPSHOT_KIND_ROOT;
    case snapshot::SnapshotKind::kTurn:
      return v1::SNAPSHOT_KIND_TURN;
    case snapshot::SnapshotKind::kBeforeLastUser:
      return v1::SNAPSHOT_KIND_BEFORE_LAST_USER;
    case snapshot::SnapshotKind::kInterval:
      return v1::SNAPSHOT_KIND_INTERVAL;
    case snapshot::SnapshotKind::kEnd:
      return v1::SNAPSHOT_KIND_END;
  }
  return v1::SNAPSHOT_KIND_UNSPECIFIED;
}

inline void add_ranges(const std::vector<snapshot::TokenRange>& ranges,
                       google::protobuf::RepeatedPtrField<v1::TokenRange>& to) {
  for (const snapshot::TokenRange& range : ranges) {
    v1::TokenRange& added = *to.Add();
    added.set_begin(range.begin);
    added.set_end(range.end);
  }
}

}  // namespace strata::gpu_worker
