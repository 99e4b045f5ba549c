// The actor's part that moves parked conversations: to disk and back, to files and back.

#include <algorithm>
#include <utility>

#include "cache-manager/snapshots/snapshot_actor.h"
#include "services/base/check.h"
#include "services/obs/log.h"
#include "services/snapshot/export_file.h"
#include "services/sys/crash_point.h"

namespace strata::cache_manager {

using snapshot::SnapshotId;
using snapshot::SnapshotInfo;
using snapshot::SnapshotKind;
using snapshot::Tier;

namespace {

constexpr uint64_t kOwn = 0;  // the owner of what this actor has open itself; no attachment has this number

}  // namespace

// --- to disk

void SnapshotActor::queue_write(const SnapshotId& id, SnapshotKind kind) {
  // A checkpoint within a prompt is for the rare case, and its fixed part is as large as any other's: it is
  // not worth the writing (services/snapshot/value.h has the weights).
  if (disk_ == nullptr || kind == SnapshotKind::kInterval || feed_.on_disk(id)) return;
  to_write_.push_back(id);
  sys::crash_point("snapshot-queued");
  pump_writes();
}

void SnapshotActor::pump_writes() {
  if (disk_ == nullptr || executor().now() < write_again_) return;
  while (!to_write_.empty() && writing_.size() < kWritesAtOnce) {
    const SnapshotId id = to_write_.front();
    to_write_.pop_front();
    if (!store_->contains(id) || feed_.on_disk(id)) continue;
    const auto open = store_->open(id, kOwn);
    CHECK(open.has_value(), "{}", open.error().message());
    auto content = store_->content(*open);
    CHECK(content.has_value(), "{}", content.error().message());
    writing_.emplace(open->ticket, Write{.id = id, .began = executor().now()});
    CHECK(disk_->writer().enqueue(std::move(*content), open->ticket));
  }
}

void SnapshotActor::on(Written message) {
  const auto write = writing_.extract(message.ticket);
  const SnapshotId id = write.mapped().id;
  const Status& result = message.result;
  CHECK(store_->release(message.ticket).ok());
  if (result.ok()) {
    probe_.saved(Tier::kDisk, seconds_since(write.mapped().began));
    sys::crash_point("snapshot-written");
  }
  if (!usable()) return;  // the tier is closed already; what was written is found next time
  const bool written = result.ok() || result.code() == Code::kAlreadyExists;
  if (written && !disk_problem_.empty()) {
    obs::info("snapshots", "parking on disk works again");
    disk_problem_.clear();
  } else if (!written) {
    if (disk_problem_ != result.message())
      obs::warn("snapshots", "not written to disk: {}", result.message());
    disk_problem_ = result.message();
    if (result.code() != Code::kOutOfRange) {  // larger than the budget: it never fits
      write_again_ = executor().now() + options_.write_pause;
      to_write_.push_front(id);
    }
  }
  const bool dropped = !store_->contains(id);  // what is open is not evicted
  if (written && dropped) drop_from_disk({id}, [](const Status&) {});
  disk_changed(message.picture);
  ram_changed();
  pump_writes();
  close_when_drained();
}

// --- from disk

void SnapshotActor::bring_to_ram(const SnapshotId& id, std::function<void(const Status&)> then) {
  if (store_->contains(id) || !feed_.on_disk(id)) return then({});
  load(id, std::move(then));
}

void SnapshotActor::load(const SnapshotId& id, std::function<void(const Status&)> then) {
  const auto [place, is_new] = loads_.try_emplace(id, Load{.began = executor().now()});
  place->second.then.push_back(std::move(then));
  if (!is_new) return;
  on_disk([id](snapshot::DiskTier& tier) { return tier.manifest(id); },
          [this, id](Result<snapshot::Manifest> manifest) { begin_load(id, std::move(manifest)); });
}

void SnapshotActor::begin_load(const SnapshotId& id, Result<snapshot::Manifest> manifest) {
  Load& load = loads_.at(id);
  if (!usable()) return end_load(id, fail(Code::kAborted, "the store is being closed"));
  if (!manifest) return end_load(id, manifest.error());
  auto reserved = snapshot::begin_load(std::move(*manifest), *store_, kOwn);
  ram_changed();
  if (!reserved) {
    const Status& why = reserved.error();
    return end_load(id, why.code() == Code::kAlreadyExists ? Status() : why);  // parked anew meanwhile
  }
  load.reserved = std::move(*reserved);
  sys::crash_point("snapshot-loading");
  on_disk(
      [store = &*store_, reserved = load.reserved](snapshot::DiskTier& tier) {
        Status status;
        for (uint32_t piece = 0; piece < reserved.pieces() && status.ok(); ++piece)
          status = snapshot::load_piece(tier, *store, reserved, piece);
        return status;
      },
      [this, id](const Status& status) { end_load(id, status); });
}

void SnapshotActor::end_load(const SnapshotId& id, const Status& status) {
  Load load = std::move(loads_.extract(id).mapped());
  Status outcome = load.dropped ? fail(Code::kNotFound, "no snapshot {}: dropped", id.text()) : status;
  if (load.reserved.reservation.ticket != 0) {
    const auto loaded = snapshot::end_load(*store_, load.reserved, outcome);
    if (loaded) {
      probe_.loaded(seconds_since(load.began));
      if (usable()) feed_.ram_stored(id);
      sys::crash_point("snapshot-loaded");
    } else {
      outcome = loaded.error();
    }
  }
  if (usable()) ram_changed();
  for (const auto& then : load.then) then(outcome);
}

// --- files

void SnapshotActor::on(Export message) {
  if (!usable()) return message.reply(fail(Code::kFailedPrecondition, "no gpu-worker has attached yet"));
  bring_to_ram(message.id, [this, message](const Status& here) {
    if (!here.ok()) return message.reply(Failure(Status(here)));
    export_from_ram(message);
  });
}

void SnapshotActor::export_from_ram(const Export& message) {
  if (!usable()) return message.reply(fail(Code::kAborted, "the store is being closed"));
  const auto open = store_->open(message.id, kOwn);
  if (!open) return message.reply(Failure(Status(open.error())));
  auto content = store_->content(*open);
  CHECK(content.has_value(), "{}", content.error().message());
  on_files(
      [path = message.path, identity = store_->identity(), content = std::move(*content)] {
        snapshot::DiskFiles files;
        return snapshot::export_snapshot(path, identity, content, files);
      },
      [this, ticket = open->ticket, reply = message.reply](Result<uint64_t> written) {
        CHECK(store_->release(ticket).ok());
        if (usable()) ram_changed();
        reply(std::move(written));
      });
}

void SnapshotActor::on(Import message) {
  if (!usable()) return message.reply(fail(Code::kFailedPrecondition, "no gpu-worker has attached yet"));
  on_files(
      [path = message.path, identity = store_->identity()] {
        return std::make_shared<Result<snapshot::ImportFile>>(snapshot::ImportFile::open(path, identity));
      },
      [this, message](const std::shared_ptr<Result<snapshot::ImportFile>>& file) {
        if (!*file) return message.reply(forward_failure(std::move(*file)));
        if (!usable()) return message.reply(fail(Code::kAborted, "the store is being closed"));
        auto reserved = (*file)->reserve(*store_, message.name_space, kOwn);
        if (!reserved && reserved.error().code() == Code::kAlreadyExists) feed_.ram_found();
        ram_changed();
        if (!reserved) return message.reply(forward_failure(std::move(reserved)));
        on_files(
            [file, store = &*store_, reserved = *reserved] { return (*file)->read(*store, reserved); },
            [this, reserved = *reserved, reply = message.reply](Result<snapshot::CopyChecksums> checksums) {
              commit_import(reserved, std::move(checksums), reply);
            });
      });
}

void SnapshotActor::commit_import(const snapshot::Reservation& reservation,
                                  Result<snapshot::CopyChecksums> checksums,
                                  const Reply<Result<SnapshotInfo>>& reply) {
  if (!checksums) {
    CHECK(store_->abandon(reservation.ticket).ok());
    publish();
    return reply(forward_failure(std::move(checksums)));
  }
  const auto stored = store_->commit(reservation.ticket, *checksums);
  CHECK(stored.has_value(), "{}", stored.error().message());
  if (usable()) {
    feed_.ram_stored(stored->id);
    queue_write(stored->id, stored->kind);
    ram_changed();
  }
  reply(feed_.info(stored->id).value_or(*stored));
}

// --- dropping

void SnapshotActor::on(Drop message) {
  std::vector<SnapshotId> wanted;
  if (!message.id.is_zero()) {
    if (feed_.info(message.id)) wanted.push_back(message.id);
  } else {
    for (const SnapshotInfo& info : feed_.list())
      if (message.all || info.history == message.history) wanted.push_back(info.id);
  }
  if (wanted.empty() && !message.all) {
    const SnapshotId& named = message.id.is_zero() ? message.history : message.id;
    return message.reply(fail(Code::kNotFound, "no parked conversation {}", named.text()));
  }
  if (wanted.empty()) return message.reply(0);
  if (!usable()) return message.reply(fail(Code::kAborted, "the store is being closed"));
  std::vector<SnapshotId> from_disk;
  for (const SnapshotId& id : wanted) {
    if (const auto load = loads_.find(id); load != loads_.end()) load->second.dropped = true;
    if (feed_.on_disk(id)) from_disk.push_back(id);
    if (store_->contains(id)) CHECK(store_->drop(id).ok());
  }
  ram_changed();
  const auto count = static_cast<uint32_t>(wanted.size());
  drop_from_disk(std::move(from_disk), [count, reply = message.reply](const Status& status) {
    if (!status.ok()) return reply(Failure(Status(status)));
    reply(count);
  });
}

void SnapshotActor::drop_from_disk(std::vector<SnapshotId> ids, std::function<void(const Status&)> then) {
  if (disk_ == nullptr || ids.empty()) return then({});
  on_disk(
      [ids = std::move(ids)](snapshot::DiskTier& tier) {
        Status first;
        for (const SnapshotId& id : ids) {
          Status status = tier.drop(id);
          // Evicted a moment ago: as wanted.
          if (!status.ok() && status.code() != Code::kNotFound && first.ok()) first = std::move(status);
        }
        return first;
      },
      std::move(then));
}

}  // namespace strata::cache_manager
