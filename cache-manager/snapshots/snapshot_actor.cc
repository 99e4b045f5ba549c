#include "cache-manager/snapshots/snapshot_actor.h"

#include <numeric>
#include <utility>

#include "services/base/check.h"
#include "services/obs/log.h"
#include "services/shm/segment.h"
#include "services/sys/crash_point.h"

namespace strata::cache_manager {

using snapshot::SnapshotId;
using snapshot::Tier;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTick{1000};  // free memory, the holder's process, a disk that failed
constexpr milliseconds kDrainTimeout{1000};

}  // namespace

SnapshotActor::SnapshotActor(std::shared_ptr<actor::Executor> executor,
                             std::shared_ptr<actor::Executor> files, SnapshotOptions options,
                             SnapshotProbe& probe)
    : Actor(std::move(executor)), files_(std::move(files)), options_(std::move(options)), probe_(probe) {
  CHECK(options_.now_ms != nullptr && options_.available_bytes != nullptr);
  disk_problem_ = options_.plan.disk_off;
  publish();
}

void SnapshotActor::on(Start) { actor::tell_after(self(), kTick, Tick{}); }

void SnapshotActor::on(Tick) {
  if (stopping_) return;
  if (attached_.process != nullptr && attached_.holder == nullptr && attached_.process->gone())
    release_attached();
  if (usable()) {
    if (const uint64_t freed = store_->relieve_memory(); freed > 0)
      obs::info("snapshots", "memory is short: {} bytes of parked conversations removed", freed);
    ram_changed();
    std::erase_if(to_write_, [&](const SnapshotId& id) { return !store_->contains(id); });
    pump_writes();
  }
  actor::tell_after(self(), kTick, Tick{});
}

// --- attaching

Status SnapshotActor::check(uint64_t attachment) const {
  const bool current = attached_.holder != nullptr && attached_.number == attachment && usable();
  if (current) return {};
  return fail(Code::kAborted, "attachment {} has ended", attachment);
}

void SnapshotActor::on(Attach message) {
  if (stopping_) return message.holder->ended(fail(Code::kUnavailable, "the cache manager is stopping"));
  const auto& before = attached_.process;
  if (before != nullptr && before->pid() != message.process->pid() && !before->gone()) {
    return message.holder->ended(
        fail(Code::kUnavailable, "the gpu-worker with pid {} is still there and may write", before->pid()));
  }
  give_up_holder(fail(Code::kAborted, "another gpu-worker has attached"));
  release_attached();
  obs::info("snapshots", "gpu-worker {} attached", message.process->pid());
  attached_ = {.number = message.attachment,
               .process = std::move(message.process),
               .identity = std::move(message.identity),
               .holder = std::move(message.holder)};
  if (options_.plan.ram_budget_bytes == 0) {
    attached_.holder->granted({.attachment = attached_.number});
  } else if (usable() && store_->identity() == attached_.identity) {
    grant();
  } else if (!opening_) {
    open_store();
  }
}

void SnapshotActor::on(Detach message) {
  if (message.attachment != attached_.number) return;
  attached_.holder = nullptr;
  if (attached_.process->gone()) release_attached();
  if (std::exchange(awaits_detach_, false)) end_attachment();
}

void SnapshotActor::give_up_holder(const Status& why) {
  if (const auto holder = std::exchange(attached_.holder, nullptr)) holder->ended(why);
}

// Nobody may be writing any more.
void SnapshotActor::release_attached() {
  const uint64_t number = std::exchange(attached_, {}).number;
  reserved_.clear();
  if (number == 0 || !store_) return;
  store_->release_owner(number);
  if (usable()) ram_changed();
}

void SnapshotActor::open_store() {
  opening_ = true;
  to_write_.clear();
  const snapshot::StateIdentity identity = attached_.identity;
  on_files(
      [this, before = std::exchange(disk_, nullptr), identity] {
        if (before != nullptr) before->close();
        return open_disk(identity);
      },
      [this, identity](OpenedDisk disk) { disk_opened(identity, std::move(disk)); });
}

// On the thread of files.
SnapshotActor::OpenedDisk SnapshotActor::open_disk(const snapshot::StateIdentity& identity) {
  const SnapshotPlan& plan = options_.plan;
  if (plan.disk_folder.empty()) return nullptr;
  snapshot::DiskTierOptions wanted;
  wanted.folder = plan.disk_folder;
  wanted.owner = fmt::format("the cache manager of run {}", options_.run_id);
  wanted.identity = identity;
  wanted.budget_bytes = plan.disk_budget_bytes;
  wanted.free_bytes_min = plan.disk_free_bytes_min;
  wanted.new_seed = snapshot::random_seed();
  wanted.now_ms = options_.now_ms;
  wanted.files = options_.disk_files;
  return SnapshotDisk::open(
      std::move(wanted),
      // What waits there is pinned, so most waits in to_write_.
      {.queue_max = kWritesAtOnce, .bytes_per_second = plan.disk_bytes_per_second},
      [actor = self()](snapshot::Ticket ticket, Status result, DiskPicture picture) {
        actor::tell(actor,
                    Written{.ticket = ticket, .result = std::move(result), .picture = std::move(picture)});
      });
}

void SnapshotActor::disk_opened(const snapshot::StateIdentity& identity, OpenedDisk disk) {
  CHECK(writing_.empty() && loads_.empty());
  feed_.end();
  store_.reset();
  opening_ = false;
  if (disk) {
    disk_ = std::move(*disk);
    disk_problem_ = options_.plan.disk_off;
  } else {
    disk_problem_ = disk.error().message();
    obs::warn("snapshots", "no parked conversations on disk: {}", disk_problem_);
  }
  if (stopping_) return close_when_drained();
  // The one that it was opened for may be gone, and another one have come.
  if (attached_.holder != nullptr && attached_.identity != identity) return open_store();
  if (const Status made = make_store(identity); !made.ok()) {
    close_disk([] {});
    publish();
    return give_up_holder(made);
  }
  if (attached_.holder != nullptr) grant();
}

void SnapshotActor::close_disk(std::function<void()> then) {
  on_files(
      [disk = std::exchange(disk_, nullptr)] {
        if (disk != nullptr) disk->close();
        return Status();
      },
      [then = std::move(then)](const Status&) { then(); });
}

Status SnapshotActor::make_store(const snapshot::StateIdentity& identity) {
  TRY(snapshot::RamPool pool,
      snapshot::RamPool::create(
          {.name = shm::segment_name(options_.run_id, "snapshots", shm::random_instance_id()),
           .budget_bytes = options_.plan.ram_budget_bytes,
           .floor_bytes = options_.plan.ram_floor_bytes,
           .available_bytes = options_.available_bytes}));
  TRY(store_, snapshot::SnapshotStore::create(
                  {.identity = identity,
                   .seed = disk_ != nullptr ? disk_->tier().seed() : snapshot::random_seed(),
                   .value = {},
                   .evictions = {},
                   .per_history_max = 0,
                   .now_ms = options_.now_ms},
                  std::move(pool)));
  removals_seen_ = 0;
  probe_.reopened(Tier::kRam);
  probe_.reopened(Tier::kDisk);
  disk_used_bytes_ = disk_ != nullptr ? disk_->tier().used_bytes() : 0;
  feed_.begin(store_->pool().segment().instance_id(), *store_, disk_.get());
  publish();
  obs::info("snapshots", "{} bytes of memory for parked conversations; {} on disk",
            store_->pool().budget_bytes(), feed_.count(Tier::kDisk));
  return {};
}

void SnapshotActor::grant() {
  const shm::Segment& segment = store_->pool().segment();
  attached_.holder->granted({.attachment = attached_.number,
                             .segment = segment.name(),
                             .segment_bytes = segment.bytes(),
                             .instance_id = segment.instance_id()});
}

// --- storing and reading

void SnapshotActor::on(Reserve message) {
  if (Status current = check(message.attachment); !current.ok()) return message.reply(Failure(current));
  const snapshot::StateIdentity& identity = store_->identity();
  const bool has_tail = message.tokens.size() % identity.page_tokens != 0;
  auto reserved = store_->reserve({.identity = store_->identity_digest(),
                                   .name_space = message.name_space,
                                   .tokens = message.tokens,
                                   .generated = message.generated,
                                   .kind = message.kind,
                                   .cost_seconds = message.cost_seconds,
                                   // A page is a blob of one size, however many of its tokens are there.
                                   .tail_bytes = has_tail ? identity.page_bytes : 0,
                                   .owner = message.attachment});
  if (reserved) {
    reserved_[reserved->ticket] = executor().now();
  } else if (reserved.error().code() == Code::kAlreadyExists) {
    feed_.ram_found();
  }
  ram_changed();
  sys::crash_point("snapshot-reserved");
  message.reply(std::move(reserved));
}

void SnapshotActor::on(Commit message) {
  if (Status current = check(message.attachment); !current.ok()) return message.reply(current);
  const auto stored = store_->commit(message.ticket, message.checksums);
  if (!stored) return message.reply(stored.error());
  if (const auto began = reserved_.extract(message.ticket))
    probe_.saved(Tier::kRam, seconds_since(began.mapped()));
  feed_.ram_stored(stored->id);
  queue_write(stored->id, stored->kind);
  ram_changed();
  sys::crash_point("snapshot-committed");
  message.reply({});
}

void SnapshotActor::on(Abandon message) {
  if (Status current = check(message.attachment); !current.ok()) return message.reply(current);
  reserved_.erase(message.ticket);
  const Status abandoned = store_->abandon(message.ticket);
  publish();
  message.reply(abandoned);
}

void SnapshotActor::on(Open message) {
  if (Status current = check(message.attachment); !current.ok()) return message.reply(Failure(current));
  const bool from_disk = !store_->contains(message.id);
  bring_to_ram(message.id, [this, message, from_disk](const Status& here) {
    Status status = here.ok() ? check(message.attachment) : here;
    if (!status.ok()) return message.reply(Failure(std::move(status)));
    auto opened = store_->open(message.id, message.attachment);
    if (!opened) return message.reply(forward_failure(std::move(opened)));
    OpenedSnapshot answer{.snapshot = std::move(*opened), .from_disk = from_disk};
    answer.tokens.tokens = *store_->tokens(message.id);
    answer.tokens.generated = *store_->generated(message.id);
    message.reply(std::move(answer));
  });
}

void SnapshotActor::on(Release message) {
  if (Status current = check(message.attachment); !current.ok()) return message.reply(current);
  const Status released = store_->release(message.ticket);
  ram_changed();
  message.reply(released);
}

// --- looking

void SnapshotActor::on(Watch message) { feed_.add(std::move(message.watcher)); }

void SnapshotActor::on(List message) {
  SnapshotListing listing{.room = room()};
  if (message.id.is_zero()) {
    listing.snapshots = feed_.list();
    return message.reply(std::move(listing));
  }
  auto tokens = feed_.tokens(message.id);
  const auto info = feed_.info(message.id);
  if (!tokens) return message.reply(forward_failure(std::move(tokens)));
  if (!info) return message.reply(fail(Code::kNotFound, "no snapshot {}", message.id.text()));
  listing.tokens = std::move(*tokens);
  listing.snapshots = {*info};
  message.reply(std::move(listing));
}

SnapshotRoom SnapshotActor::room() const {
  const std::lock_guard lock(room_mutex_);
  return room_;
}

void SnapshotActor::ram_changed() {
  const auto& evicted = store_->counters().evicted;
  const uint64_t removals = std::accumulate(evicted.begin(), evicted.end(), uint64_t{0});
  if (std::exchange(removals_seen_, removals) != removals) {
    feed_.ram_removed();
    probe_.removed(Tier::kRam, evicted);
  }
  publish();
}

void SnapshotActor::disk_changed(const DiskPicture& picture) {
  feed_.disk_changed(picture);
  probe_.removed(Tier::kDisk, picture.evicted);
  disk_used_bytes_ = picture.used_bytes;
  publish();
}

void SnapshotActor::publish() {
  SnapshotRoom now{.disk_folder = options_.plan.disk_folder, .disk_problem = disk_problem_};
  now.ram.budget_bytes = options_.plan.ram_budget_bytes;
  if (store_) now.ram.used_bytes = store_->pool().used_bytes();
  now.ram.snapshots = feed_.count(Tier::kRam);
  now.disk.budget_bytes = now.disk_folder.empty() ? 0 : options_.plan.disk_budget_bytes;
  if (disk_ != nullptr) now.disk.used_bytes = disk_used_bytes_;
  now.disk.snapshots = feed_.count(Tier::kDisk);
  probe_.room(Tier::kRam, now.ram.used_bytes, now.ram.budget_bytes);
  probe_.room(Tier::kDisk, now.disk.used_bytes, now.disk.budget_bytes);
  const std::lock_guard lock(room_mutex_);
  room_ = std::move(now);
}

// --- the end

void SnapshotActor::on(Stop message) {
  stop_asked_ = std::move(message.reply);
  actor::tell_after(self(), kDrainTimeout, DrainOver{});
  awaits_detach_ = attached_.holder != nullptr && message.gpu_worker_patience > milliseconds(0);
  if (awaits_detach_) {
    actor::tell_after(self(), message.gpu_worker_patience, GpuWorkerPatienceOver{});
  } else {
    end_attachment();
  }
}

void SnapshotActor::on(GpuWorkerPatienceOver) {
  if (std::exchange(awaits_detach_, false)) end_attachment();
}

void SnapshotActor::end_attachment() {
  stopping_ = std::exchange(stop_asked_, nullptr);
  give_up_holder(fail(Code::kUnavailable, "the cache manager is stopping"));
  if (usable()) pump_writes();
  close_when_drained();
}

void SnapshotActor::on(DrainOver) {
  drain_over_ = true;
  if (std::exchange(awaits_detach_, false)) end_attachment();
  close_when_drained();
}

void SnapshotActor::close_when_drained() {
  const bool drained =
      drain_over_ || write_again_ > executor().now() || (to_write_.empty() && writing_.empty());
  if (!stopping_ || opening_ || !drained || std::exchange(closing_, true)) return;
  if (!to_write_.empty())
    obs::warn("snapshots", "{} parked conversations are not on disk and end here", to_write_.size());
  close_disk([this] {
    feed_.end();
    store_.reset();
    stopping_();
  });
}

}  // namespace strata::cache_manager
