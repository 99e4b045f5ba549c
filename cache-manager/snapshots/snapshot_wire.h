#pragma once
// Between the messages of snapshots.proto and the store's types.

#include <string>

#include "cache-manager/snapshots/snapshot_actor.h"
#include "strata/v1/snapshots.pb.h"

namespace strata::cache_manager {

// kInvalidArgument, naming the field: not 16 bytes.
Result<snapshot::Hash128> hash_from_wire(const std::string& bytes, std::string_view field);
// The same, and an empty field is zero: "none".
Result<snapshot::Hash128> optional_hash_from_wire(const std::string& bytes, std::string_view field);

// kInvalidArgument: no identity, or one that this version does not understand.
Result<snapshot::StateIdentity> identity_from_wire(const std::string& bytes);
// Without attachment and reply. kInvalidArgument: names the field.
Result<SnapshotActor::Reserve> reserve_from_wire(const v1::ReserveSnapshotRequest& request);
snapshot::CopyChecksums checksums_from_wire(const v1::CommitSnapshotRequest& request);

void write_reservation(const snapshot::Reservation& from, v1::ReserveSnapshotResponse& to);
void write_opened(const OpenedSnapshot& from, v1::OpenSnapshotResponse& to);
void write_snapshot(const snapshot::SnapshotInfo& from, v1::Snapshot& to);
void write_listing(const SnapshotListing& from, v1::ListSnapshotsResponse& to);
v1::WatchSnapshotsResponse to_wire(const FeedEvent& event);

}  // namespace strata::cache_manager
