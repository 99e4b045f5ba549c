#include "cache-manager/snapshots/snapshot_disk.h"

#include <utility>

namespace strata::cache_manager {

Result<std::shared_ptr<SnapshotDisk>> SnapshotDisk::open(snapshot::DiskTierOptions options,
                                                         const snapshot::DiskWriterOptions& writing,
                                                         Written written) {
  std::shared_ptr<SnapshotDisk> disk(new SnapshotDisk);
  TRY(disk->tier_, snapshot::DiskTier::open(std::move(options)));
  // The writer ends before its disk does.
  disk->writer_ = std::make_unique<snapshot::DiskWriter>(
      *disk->tier_, writing,
      [self = disk.get(), written = std::move(written)](uint64_t ticket,
                                                        const Result<snapshot::SnapshotInfo>& result) {
        written(ticket, result ? Status() : result.error(), self->picture());
      });
  return disk;
}

DiskPicture SnapshotDisk::picture() {
  const std::lock_guard lock(looking_);
  return {.number = ++pictures_,
          .snapshots = tier_->list(),
          .used_bytes = tier_->used_bytes(),
          .evicted = tier_->counters().evicted};
}

void SnapshotDisk::close() {
  writer_.reset();
  tier_.reset();
}

}  // namespace strata::cache_manager
