#pragma once
// One snapshot as one file, to keep it or to carry it to another machine: identity, manifest, fixed part,
// pages, tail, end, each an object with its header and checksum (docs/snapshot-format.md). Not a backup of a
// tier; what it names, it holds.

#include <memory>
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

// The way back, in steps, so that the store's owner never waits for the file: open() and read() on any
// thread, reserve() and the store's commit() or abandon() on the owner's.
class ImportFile {
 public:
  // Errors: kNotFound, kDataLoss (no export, cut off, damaged: names the byte), kFailedPrecondition (another
  // identity: names what differs).
  static Result<ImportFile> open(const std::string& path, const StateIdentity& identity);
  ImportFile(ImportFile&& other) noexcept;
  ImportFile& operator=(ImportFile&& other) noexcept;
  ~ImportFile();

  // As a snapshot of name_space (zero: the one it was exported from), used now. Errors as
  // SnapshotStore::reserve() (kAlreadyExists: it is here).
  Result<Reservation> reserve(SnapshotStore& store, const Hash128& name_space, uint64_t owner) const;
  // Once: fills the reservation. kDataLoss names the byte or part.
  Result<CopyChecksums> read(const SnapshotStore& store, const Reservation& reservation);

 private:
  struct Impl;
  explicit ImportFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// All of it at once; the errors of all steps.
Result<SnapshotInfo> import_snapshot(const std::string& path, SnapshotStore& store,
                                     const Hash128& name_space);

}  // namespace strata::snapshot
