#pragma once
// The disk tier: snapshots as files, with a budget of their own, that survive restarts and whatever end the
// process finds.
//
//   FOLDER/LOCK                      one process at a time (folder_lock.h)
//   FOLDER/<identity>/store          whose states these are, and the seed of the keys
//   FOLDER/<identity>/<id>.fixed .tail .snapshot    of one snapshot; .snapshot is the manifest
//   FOLDER/<identity>/<key>.page     shared
//   FOLDER/<identity>/index.sqlite   what the manifests say (disk_index.h)
//
// Every file is written under another name, made durable and renamed; a manifest only after everything that
// it names. So a manifest that is there is complete, and a snapshot exists if and only if its manifest does.
// What a crash leaves behind is removed at the next start. States of other identities stay as long as the
// budget has room for them (somebody may go back to that model), and are the first to go. Files of others in
// the folder are left alone and counted.
//
// Thread-safe: reads go on while a snapshot is written; one write at a time. No call waits for another's file
// operations, except that removals happen under the lock.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/base/status.h"
#include "services/snapshot/catalog.h"
#include "services/snapshot/content.h"
#include "services/snapshot/disk_files.h"
#include "services/snapshot/disk_index.h"
#include "services/snapshot/eviction_log.h"
#include "services/snapshot/folder_lock.h"
#include "services/snapshot/object_file.h"

namespace strata::snapshot {

struct DiskTierOptions {
  std::string folder;  // made with mode 0700 if it is not there (its parent must be)
  std::string owner;   // who we are, for the text in LOCK
  StateIdentity identity;
  uint64_t budget_bytes = 0;    // of all files together, in blocks of 4 KiB, the index apart
  uint64_t free_bytes_min = 0;  // of the file system; nothing is written that would leave less
  bool compress = true;         // where it saves at least a tenth (object_file.h)
  StoreSeed new_seed{};         // for a folder that has none yet
  ValueOptions value;
  EvictionLogOptions evictions;
  std::function<int64_t()> now_ms;       // Unix time
  std::function<uint64_t()> free_bytes;  // of the file system; empty: asks it
  std::shared_ptr<DiskFiles> files;      // empty: the real ones
};

struct DiskCounters {
  uint64_t written = 0;        // snapshots
  uint64_t written_bytes = 0;  // of all files
  uint64_t raw_bytes = 0;      // the same before compression
  uint64_t already_here = 0;
  uint64_t pages_shared = 0;
  uint64_t read_bytes = 0;     // raw
  uint64_t refused_large = 0;  // more than the whole budget
  uint64_t refused_full = 0;   // the disk is full, or what could be freed would not do
  uint64_t write_errors = 0;
  uint64_t index_errors = 0;      // the index could not be changed; the next start repairs it
  uint64_t damaged = 0;           // snapshots dropped because a file was damaged or missing
  uint64_t foreign_files = 0;     // found at start, left alone
  uint64_t leftovers = 0;         // unfinished files and pages nobody refers to, removed at start
  uint64_t index_rebuilt = 0;     // 1: the index was lost or damaged
  uint64_t other_identities = 0;  // folders of other identities that are there
  std::array<uint64_t, kEvictionCauses> evicted{};
};

class DiskTier {
 public:
  // Finds out what is there, repairs, and offers it. Errors: kInvalidArgument (identity), kAlreadyExists
  // (another process has the folder; says which), kPermissionDenied (also: the folder belongs to somebody
  // else), kNotFound (no parent folder), kResourceExhausted (not even the small files fit), ... Without this
  // tier everything else works.
  static Result<std::unique_ptr<DiskTier>> open(DiskTierOptions options);

  // The seed that the keys of this folder were made with: the RAM store must use the same.
  const StoreSeed& seed() const { return seed_; }

  // Makes room and writes what is not here yet. Returns after everything is durable. Errors: kAlreadyExists
  // (counts as a use), kFailedPrecondition (a content of another seed or shape), kOutOfRange (larger than the
  // budget), kResourceExhausted (disk full, or not enough could be freed), what `pace` returned, others by
  // errno. After an error nothing of it is offered.
  Result<SnapshotInfo> write(const SnapshotContent& content, const Pace& pace);

  // What a snapshot is made of; counts as a use. kNotFound: says why it is gone, if that is known.
  Result<Manifest> manifest(const SnapshotId& id);
  // The same without counting as a use, and without touching the index.
  Result<Manifest> look(const SnapshotId& id) const;
  // Read and compared with the checksum, into memory of exactly identity.fixed_bytes, page_bytes or
  // manifest.tail_bytes. kNotFound (also if it was removed since manifest(): give the whole restore up),
  // kDataLoss (the snapshot, and every other that needs the same file, is dropped), kOutOfRange (no such
  // page).
  Status read_fixed(const SnapshotId& id, std::span<std::byte> into);
  Status read_page(const SnapshotId& id, uint32_t page_index, std::span<std::byte> into);
  Status read_tail(const SnapshotId& id, std::span<std::byte> into);

  Status drop(const SnapshotId& id);   // kNotFound; what removing a file fails with
  Status touch(const SnapshotId& id);  // counts as a use; kNotFound
  bool contains(const SnapshotId& id) const;
  std::optional<SnapshotInfo> info(const SnapshotId& id) const;
  std::vector<SnapshotInfo> list() const;  // the last used first
  std::optional<Eviction> why_gone(const SnapshotId& id) const;
  uint64_t used_bytes() const;  // at most the budget, unless it was lowered below what cannot be removed
  uint64_t budget_bytes() const { return options_.budget_bytes; }
  DiskCounters counters() const;

 private:
  struct OtherIdentity {
    std::string path;
    uint64_t bytes = 0;
    int64_t changed = 0;
  };
  struct FoundFiles;

  DiskTier(DiskTierOptions options, FolderLock lock);

  // --- opening (disk_tier_open.cc)
  Status prepare_folder();
  Status read_or_make_store_file();
  void find_other_identities();
  FoundFiles find_files();
  Status load(FoundFiles& found);
  Result<Manifest> read_manifest_file(const SnapshotId& id) const;
  ObjectName manifest_name(const SnapshotId& id) const;
  Result<std::vector<Manifest>> indexed_manifests();
  bool admit(const Manifest& manifest, FoundFiles& found);
  void remove_leftovers(const FoundFiles& found);

  // --- all of these under the lock
  const CatalogEntry* entry_of(const SnapshotId& id) const;
  Failure gone(const SnapshotId& id) const;
  Status make_room(uint64_t needed);
  Status remove_other_identity();
  Status remove_snapshot(const SnapshotId& id, EvictionCause cause);
  void remove_pages(std::span<const Hash128> keys);
  uint64_t used_bytes_locked() const;

  // --- writing, without the lock
  struct Writing {
    std::vector<Hash128> held;  // pages that are here already
    uint64_t reserved_bytes = 0;
    std::vector<uint64_t> page_bytes;  // footprint of each page written, in order
    uint64_t own_bytes = 0;            // footprint of fixed part, tail, manifest
    std::vector<std::string> files;    // written so far
  };
  Status check_content(const SnapshotContent& content) const;
  Result<Writing> begin_writing(const SnapshotContent& content);
  Status write_files(const SnapshotContent& content, const Pace& pace, Writing& writing);
  Result<uint64_t> write_one(const ObjectToWrite& object, const Pace& pace, Writing& writing);
  SnapshotInfo end_writing(const SnapshotContent& content, Writing& writing);
  void undo_writing(Writing& writing);

  Status read(const SnapshotId& id, const ObjectName& name, std::span<std::byte> into);
  void drop_damaged(const ObjectName& name);
  std::string path_of(const ObjectName& name) const;

  DiskTierOptions options_;
  FolderLock lock_;
  Hash128 identity_digest_;
  std::string folder_;  // of this identity
  StoreSeed seed_{};
  std::mutex writing_;        // held by the one write in progress
  mutable std::mutex mutex_;  // of everything below
  Catalog catalog_;
  std::optional<DiskIndex> index_;
  EvictionLog evictions_;
  std::vector<OtherIdentity> others_;
  uint64_t reserved_bytes_ = 0;  // for the write in progress
  DiskCounters counters_;
};

}  // namespace strata::snapshot
