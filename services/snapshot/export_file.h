#pragma once
// One snapshot as one file, to keep it or to carry it to another machine: identity, manifest, fixed part,
// pages, tail, end, each an object with its header and checksum (docs/snapshot-format.md). Not a backup of a
// tier; what it names, it holds.

#include <string>

#include "services/base/status.h"
#include "services/snapshot/content.h"
#include "services/snapshot/disk_files.h"
#include "services/snapshot/snapshot_store.h"

namespace strata::snapshot {

// Mode 0600. The store's seed is left out. Returns the bytes of the file. Errors: kAlreadyExists (there is a
// file of that name; it stays), those of DiskFiles.
Result<uint64_t> export_snapshot(const std::string& path, const StateIdentity& identity,
                                 const SnapshotContent& content, DiskFiles& files);

// Into the store, as a snapshot of name_space (zero: the one it was exported from), used now. Errors:
// kNotFound, kDataLoss (no export, cut off, damaged: names the byte or part), kFailedPrecondition (another
// identity: names what differs), and those of SnapshotStore::reserve() (kAlreadyExists: it is here).
Result<SnapshotInfo> import_snapshot(const std::string& path, SnapshotStore& store,
                                     const Hash128& name_space);

}  // namespace strata::snapshot
