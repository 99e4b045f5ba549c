#pragma once
// Writes snapshots to the disk tier from a thread of its own, one after the other, within a bandwidth, so
// that parking never waits for the disk and the disk stays usable for whoever reads experts from it.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "services/snapshot/disk_tier.h"

namespace strata::snapshot {

// When the next bytes may be written, so that in the long run no more than the rate is. Pure; no burst is
// saved up.
class BandwidthBudget {
 public:
  explicit BandwidthBudget(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: no limit
  // Microseconds to wait from now on before writing so many bytes; they count as written then.
  int64_t wait_us(uint64_t bytes, int64_t now_us);

 private:
  uint64_t bytes_per_second_;
  int64_t free_at_us_ = 0;  // the bytes so far are paid for then
};

struct DiskWriterOptions {
  uint32_t queue_max = 64;        // snapshots that wait
  uint64_t bytes_per_second = 0;  // 0: as fast as the disk is
};

class DiskWriter {
 public:
  // done(mark, result): called on the writer's thread once for every snapshot that was taken, also for those
  // that were given up (kCancelled). The tier must outlive the writer.
  using Done = std::function<void(uint64_t mark, Result<SnapshotInfo> result)>;
  DiskWriter(DiskTier& tier, const DiskWriterOptions& options, Done done);
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;
  ~DiskWriter();  // stop()

  // The bytes must stay as they are until done(mark): keep the snapshot open. False: the queue is full, or it
  // is stopping; nothing was taken.
  bool enqueue(SnapshotContent content, uint64_t mark);
  // Gives up what waits and, after its slice, what is being written (at most 1 MiB and a sync); returns when
  // the thread has ended.
  void stop();
  // Returns when everything taken so far is done.
  void wait_until_idle();
  uint32_t waiting() const;

 private:
  struct Job {
    SnapshotContent content;
    uint64_t mark = 0;
  };
  void run();
  Status pace(uint64_t bytes);

  DiskTier& tier_;
  DiskWriterOptions options_;
  Done done_;
  BandwidthBudget bandwidth_;
  mutable std::mutex mutex_;  // of the members up to idle_
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool stopping_ = false;
  bool busy_ = false;
  std::condition_variable idle_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace strata::snapshot
