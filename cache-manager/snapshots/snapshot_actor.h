#pragma once
// Owns the parked conversations: the store in shared memory, the disk tier and what moves between them. The
// gpu-worker copies states into the store and out of it; this actor only keeps the books, and never waits for
// a file. What does (opening the tier, loads, exports, removals) runs on the executor `files`, one thing
// after another; writing runs on the writer's thread.
//
//   attached -> the tier of that identity is opened (files) -> the store is made with the tier's keys ->
//   granted stored   -> queued -> pinned, written (writer) -> on disk, too opened   -> in RAM: at once; on
//   disk only: loaded first (files), whoever else asks meanwhile waits for the same
//
// A store is given up only when nobody uses it on another thread any more: closing the tier is work for
// `files`, behind whatever refers to the store, and the writer ends within it; both report to this mailbox
// before that work does.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache-manager/snapshots/snapshot_disk.h"
#include "cache-manager/snapshots/snapshot_feed.h"
#include "cache-manager/snapshots/snapshot_plan.h"
#include "cache-manager/snapshots/snapshot_probe.h"
#include "services/actor/actor.h"
#include "services/snapshot/disk_load.h"
#include "services/snapshot/snapshot_store.h"
#include "services/sys/process.h"

namespace strata::cache_manager {

struct SnapshotOptions {
  SnapshotPlan plan;
  std::string run_id;                               // for the segment's name
  std::function<int64_t()> now_ms;                  // Unix time
  std::function<uint64_t()> available_bytes;        // sys::available_memory_bytes
  std::shared_ptr<snapshot::DiskFiles> disk_files;  // null: the real ones
  std::chrono::milliseconds write_pause{10000};     // after the disk failed
};

// What a gpu-worker needs to copy. No segment: nothing is kept (a budget of 0).
struct SnapshotGrant {
  uint64_t attachment = 0;
  std::string segment = {};
  uint64_t segment_bytes = 0;
  uint64_t instance_id = 0;
};

// The one that attached; called from the actor.
class SnapshotHolder {
 public:
  virtual ~SnapshotHolder() = default;
  virtual void granted(const SnapshotGrant& grant) = 0;
  virtual void ended(const Status& why) = 0;  // refused, or withdrawn; nothing follows
};

struct OpenedSnapshot {
  snapshot::OpenSnapshot snapshot;
  bool from_disk = false;
  SnapshotFeed::Tokens tokens = {};
};

struct TierUse {
  uint64_t used_bytes = 0;
  uint64_t budget_bytes = 0;
  uint32_t snapshots = 0;
};
// For `strata status` and List.
struct SnapshotRoom {
  TierUse ram = {}, disk = {};
  std::string disk_folder = {};   // empty: no disk tier
  std::string disk_problem = {};  // why there is none, or what the last write failed with; empty: all is well
};
struct SnapshotListing {
  std::vector<snapshot::SnapshotInfo> snapshots = {};  // the last used first
  SnapshotFeed::Tokens tokens = {};                    // of the one that was asked for
  SnapshotRoom room;
};

class SnapshotActor final : public actor::Actor {
 public:
  // `probe` outlives the actor.
  SnapshotActor(std::shared_ptr<actor::Executor> executor, std::shared_ptr<actor::Executor> files,
                SnapshotOptions options, SnapshotProbe& probe);

  template <class T>
  using Reply = std::function<void(T)>;

  // Messages from outside. Errors of those with an attachment: kAborted if it is not the present one.
  struct Start {};
  // Takes over when the process that attached before is gone (or is the same one), else kUnavailable.
  // kResourceExhausted: /dev/shm has no room for the budget.
  struct Attach {
    uint64_t attachment = 0;  // the caller's number for it, never used twice, not 0
    std::shared_ptr<sys::ProcessHandle> process;
    snapshot::StateIdentity identity;
    std::shared_ptr<SnapshotHolder> holder;
  };
  struct Detach {  // its stream is broken; what it had open stays until its process is gone
    uint64_t attachment = 0;
  };
  struct Reserve {  // errors: SnapshotStore::reserve()
    uint64_t attachment = 0;
    snapshot::Hash128 name_space;
    std::vector<int32_t> tokens;
    std::vector<snapshot::TokenRange> generated;
    snapshot::SnapshotKind kind = snapshot::SnapshotKind::kTurn;
    double cost_seconds = 0;
    Reply<Result<snapshot::Reservation>> reply;
  };
  struct Commit {  // errors: SnapshotStore::commit()
    uint64_t attachment = 0;
    snapshot::Ticket ticket = 0;
    snapshot::CopyChecksums checksums;
    Reply<Status> reply;
  };
  struct Abandon {  // kNotFound
    uint64_t attachment = 0;
    snapshot::Ticket ticket = 0;
    Reply<Status> reply;
  };
  // Errors: SnapshotStore::open(), and those of a load: kDataLoss, kResourceExhausted, kOutOfRange.
  struct Open {
    uint64_t attachment = 0;
    snapshot::SnapshotId id;
    Reply<Result<OpenedSnapshot>> reply;
  };
  struct Release {  // kNotFound
    uint64_t attachment = 0;
    snapshot::Ticket ticket = 0;
    Reply<Status> reply;
  };
  struct Watch {
    SnapshotFeed::Watcher watcher;
  };
  struct List {
    snapshot::SnapshotId id;  // not zero: only this one, with its tokens; kNotFound
    Reply<Result<SnapshotListing>> reply;
  };
  // Of both tiers; how many. kNotFound: an id or a history that is not there; what removing a file failed
  // with.
  struct Drop {
    snapshot::SnapshotId id = {};
    snapshot::SnapshotId history = {};
    bool all = false;
    Reply<Result<uint32_t>> reply = {};
  };
  struct Export {  // bytes written. Errors: as Open and snapshot::export_snapshot()
    snapshot::SnapshotId id;
    std::string path;
    Reply<Result<uint64_t>> reply;
  };
  struct Import {  // errors: snapshot::import_snapshot()
    std::string path;
    snapshot::Hash128 name_space;  // zero: the one it was exported from
    Reply<Result<snapshot::SnapshotInfo>> reply;
  };
  // Waits until the gpu-worker has detached, which parks what it still has when all processes are stopped,
  // but not longer than `gpu_worker_patience`; ends the attachment, writes what waits and gives everything
  // up; then replies. Waiting and writing take kDrainTimeout at most.
  struct Stop {
    std::function<void()> reply;
    std::chrono::milliseconds gpu_worker_patience{0};
  };
  void on(Start);
  void on(Attach message);
  void on(Detach message);
  void on(Reserve message);
  void on(Commit message);
  void on(Abandon message);
  void on(Open message);
  void on(Release message);
  void on(Watch message);
  void on(List message);
  void on(Drop message);
  void on(Export message);
  void on(Import message);
  void on(Stop message);

  // Messages to itself.
  struct Tick {};
  struct GpuWorkerPatienceOver {};
  struct Written {  // from the writer's thread
    snapshot::Ticket ticket = 0;
    Status result;
    DiskPicture picture;
  };
  struct DrainOver {};
  void on(Tick);
  void on(GpuWorkerPatienceOver);
  void on(Written message);
  void on(DrainOver);

  SnapshotRoom room() const;  // any thread; as of the last change

 private:
  // One that is written, and one so that the writer does not wait: they are pinned, so that reservations
  // cannot have their memory.
  static constexpr uint32_t kWritesAtOnce = 2;
  struct Attached {
    uint64_t number = 0;
    std::shared_ptr<sys::ProcessHandle> process;  // null: nobody has attached yet
    snapshot::StateIdentity identity;
    std::shared_ptr<SnapshotHolder> holder;  // null: its stream is broken
  };
  struct Write {
    snapshot::SnapshotId id;
    actor::Clock::time_point began;
  };
  struct Load {
    actor::Clock::time_point began;
    snapshot::DiskLoad reserved = {};
    std::vector<std::function<void(const Status&)>> then = {};  // whoever waits for it
    bool dropped = false;                                       // by somebody, while it is being loaded
  };

  std::shared_ptr<SnapshotActor> self() {
    return std::static_pointer_cast<SnapshotActor>(shared_from_this());
  }
  // Does `work` on the thread of files, then calls then(its result) in this mailbox.
  template <class Work, class Then>
  void on_files(Work work, Then then);
  // The same with the disk tier, work(tier); what it changed there is known when `then` is called.
  template <class Work, class Then>
  void on_disk(Work work, Then then);
  // Whether work for `files` may still refer to store and tier.
  bool usable() const { return store_ && !opening_ && !closing_; }

  // --- attaching
  Status check(uint64_t attachment) const;
  void give_up_holder(const Status& why);
  void release_attached();
  void open_store();
  using OpenedDisk = Result<std::shared_ptr<SnapshotDisk>>;  // null: none is configured
  OpenedDisk open_disk(const snapshot::StateIdentity& identity);
  void disk_opened(const snapshot::StateIdentity& identity, OpenedDisk disk);
  void close_disk(std::function<void()> then);
  Status make_store(const snapshot::StateIdentity& identity);
  void grant();

  // --- moving (snapshot_moves.cc)
  void queue_write(const snapshot::SnapshotId& id, snapshot::SnapshotKind kind);
  void pump_writes();
  void load(const snapshot::SnapshotId& id, std::function<void(const Status&)> then);
  void begin_load(const snapshot::SnapshotId& id, Result<snapshot::Manifest> manifest);
  void end_load(const snapshot::SnapshotId& id, const Status& status);
  // Calls then(ok) when it is in RAM.
  void bring_to_ram(const snapshot::SnapshotId& id, std::function<void(const Status&)> then);
  void export_from_ram(const Export& message);
  void commit_import(const snapshot::Reservation& reservation, Result<snapshot::CopyChecksums> checksums,
                     const Reply<Result<snapshot::SnapshotInfo>>& reply);
  void drop_from_disk(std::vector<snapshot::SnapshotId> ids, std::function<void(const Status&)> then);

  void ram_changed();  // after whatever may have removed something
  void disk_changed(const DiskPicture& picture);
  void publish();
  void end_attachment();
  void close_when_drained();
  double seconds_since(actor::Clock::time_point begin) {
    return std::chrono::duration<double>(executor().now() - begin).count();
  }

  const std::shared_ptr<actor::Executor> files_;
  const SnapshotOptions options_;
  SnapshotProbe& probe_;

  Attached attached_;
  bool opening_ = false;  // the tier of an identity; there is no store, or one that is given up
  std::optional<snapshot::SnapshotStore> store_;
  std::shared_ptr<SnapshotDisk> disk_;  // null: no disk tier
  uint64_t disk_used_bytes_ = 0;
  std::string disk_problem_;
  SnapshotFeed feed_;
  uint64_t removals_seen_ = 0;                                               // of the store's counters
  std::unordered_map<snapshot::Ticket, actor::Clock::time_point> reserved_;  // when
  std::deque<snapshot::SnapshotId> to_write_;
  std::map<snapshot::Ticket, Write> writing_;
  actor::Clock::time_point write_again_;  // not before: the disk failed
  std::unordered_map<snapshot::SnapshotId, Load, snapshot::Hash128Hasher> loads_;
  std::function<void()> stop_asked_;  // until the attachment has ended
  std::function<void()> stopping_;    // then
  bool awaits_detach_ = false;        // before it ends the attachment
  bool drain_over_ = false;
  bool closing_ = false;

  mutable std::mutex room_mutex_;
  SnapshotRoom room_;
};

template <class Work, class Then>
void SnapshotActor::on_files(Work work, Then then) {
  files_->post([actor = self(), work = std::move(work), then = std::move(then)]() mutable {
    // A function's copies share the result: it need not be one that can be copied.
    auto result = std::make_shared<decltype(work())>(work());
    actor->executor().post([actor, then, result]() mutable { then(std::move(*result)); });
  });
}

template <class Work, class Then>
void SnapshotActor::on_disk(Work work, Then then) {
  using Outcome = decltype(work(disk_->tier()));
  struct Done {
    Outcome outcome;
    DiskPicture picture;
  };
  on_files(
      [disk = disk_, work = std::move(work)]() mutable {
        Outcome outcome = work(disk->tier());
        return Done{std::move(outcome), disk->picture()};
      },
      [this, disk = disk_, then = std::move(then)](Done done) mutable {
        if (disk == disk_) disk_changed(done.picture);
        then(std::move(done.outcome));
      });
}

}  // namespace strata::cache_manager
