#pragma once
// From the disk tier into RAM, piece by piece, so that the store's owner never waits for the disk:
// begin_load() and end_load() on its thread, DiskTier::manifest() and load_piece() on any other, in any
// order, also while the first pieces are already copied on.

#include <cstdint>

#include "services/base/status.h"
#include "services/snapshot/disk_tier.h"
#include "services/snapshot/snapshot_store.h"

namespace strata::snapshot {

struct DiskLoad {
  Manifest manifest;
  Reservation reservation;  // pages that RAM has already are not read again
  // The fixed part is piece 0, then the reservation's pages.
  uint32_t pieces() const { return 1 + static_cast<uint32_t>(reservation.pages.size()); }
};

// Errors: those of SnapshotStore::reserve() (kAlreadyExists: RAM has it), kFailedPrecondition (the tiers have
// different seeds).
Result<DiskLoad> begin_load(Manifest manifest, SnapshotStore& ram, uint64_t owner);
// Reads one piece into its extent and checks it. Errors: those of DiskTier::read_...; kDataLoss also names a
// part of the fixed part that was damaged before it was written.
Status load_piece(DiskTier& disk, const SnapshotStore& ram, const DiskLoad& load, uint32_t piece);
// After the last piece: commits if all went well, else abandons and returns the failure. No load_piece() may
// be running.
Result<SnapshotInfo> end_load(SnapshotStore& ram, const DiskLoad& load, Status pieces);

// All of it at once.
Result<SnapshotInfo> load_snapshot(DiskTier& disk, SnapshotStore& ram, const SnapshotId& id, uint64_t owner);

}  // namespace strata::snapshot
