#pragma once
// The disk tier of one identity together with its writer, and what others see of it. The tier's calls may
// wait for files (removals, the index), so they belong to the thread of files or the writer's; whoever must
// not wait looks at pictures.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "services/snapshot/disk_tier.h"
#include "services/snapshot/disk_writer.h"

namespace strata::cache_manager {

// A tier at one moment.
struct DiskPicture {
  uint64_t number = 0;  // of a tier's pictures a later one has a higher number
  std::vector<snapshot::SnapshotInfo> snapshots = {};
  uint64_t used_bytes = 0;
  std::array<uint64_t, snapshot::kEvictionCauses> evicted = {};
};

class SnapshotDisk {
 public:
  // Called on the writer's thread for everything that was enqueued; the picture shows what has come of it.
  using Written = std::function<void(uint64_t mark, Status result, DiskPicture picture)>;
  // Errors: DiskTier::open().
  static Result<std::shared_ptr<SnapshotDisk>> open(snapshot::DiskTierOptions options,
                                                    const snapshot::DiskWriterOptions& writing,
                                                    Written written);

  snapshot::DiskTier& tier() { return *tier_; }
  const snapshot::DiskTier& tier() const { return *tier_; }
  snapshot::DiskWriter& writer() { return *writer_; }
  DiskPicture picture();
  // Gives up what waits to be written, tells of it, and lets go of the folder. Nobody may use it after that,
  // though some may still refer to it.
  void close();

 private:
  SnapshotDisk() = default;
  std::unique_ptr<snapshot::DiskTier> tier_;
  std::unique_ptr<snapshot::DiskWriter> writer_;  // ends before the tier
  std::mutex looking_;                            // so that numbers and pictures have one order
  uint64_t pictures_ = 0;
};

}  // namespace strata::cache_manager
