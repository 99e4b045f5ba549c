#include "cache-manager/snapshots/snapshot_feed.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace strata::cache_manager {

using snapshot::Hash128Hasher;
using snapshot::SnapshotId;
using snapshot::SnapshotInfo;
using snapshot::Tier;

void SnapshotFeed::begin(uint64_t instance_id, snapshot::SnapshotStore& ram, SnapshotDisk* disk) {
  end();
  instance_id_ = instance_id;
  ram_ = &ram;
  for (const SnapshotInfo& info : ram_->list()) known_[info.id].ram = true;
  if (disk != nullptr) {
    disk_ = &disk->tier();
    const DiskPicture picture = disk->picture();
    last_picture_ = picture.number;
    for (const SnapshotInfo& info : picture.snapshots) known_[info.id].disk = info;
  }
  std::vector<SnapshotId> missing;
  std::erase_if(watchers_, [&](const Watcher& watcher) { return !tell_everything(watcher, missing); });
  for (const SnapshotId& id : missing) known_.erase(id);
}

void SnapshotFeed::end() {
  instance_id_ = 0;
  ram_ = nullptr;
  disk_ = nullptr;
  last_picture_ = 0;
  known_.clear();
}

void SnapshotFeed::add(Watcher watcher) {
  std::vector<SnapshotId> missing;
  const bool wants_more = tell_everything(watcher, missing);
  // The others have been told of it; the new one never hears of it.
  for (const SnapshotId& id : missing) forget(known_.find(id));
  if (wants_more) watchers_.push_back(std::move(watcher));
}

// --- changes

void SnapshotFeed::ram_stored(const SnapshotId& id) {
  const auto [place, is_new] = known_.try_emplace(id);
  if (std::exchange(place->second.ram, true)) return;
  static_cast<void>(ram_->set_elsewhere(id, place->second.disk.has_value()));  // it has just been stored
  if (is_new) {
    tell_new(id);
  } else {
    tell_places(id);
  }
}

void SnapshotFeed::ram_found() {
  for (const SnapshotInfo& info : ram_->list()) ram_stored(info.id);
}

void SnapshotFeed::ram_removed() {
  for (auto place = known_.begin(); place != known_.end();) {
    const auto here = place++;
    if (!here->second.ram || ram_->contains(here->first)) continue;
    here->second.ram = false;
    if (here->second.disk) {
      tell_places(here->first);
    } else {
      forget(here);
    }
  }
}

void SnapshotFeed::disk_changed(const DiskPicture& picture) {
  if (picture.number <= last_picture_) return;
  last_picture_ = picture.number;
  std::vector<SnapshotInfo> list = picture.snapshots;
  std::unordered_set<SnapshotId, Hash128Hasher> there;
  for (const SnapshotInfo& info : list) there.insert(info.id);
  for (auto place = known_.begin(); place != known_.end();) {
    const auto here = place++;
    if (!here->second.disk || there.contains(here->first)) continue;
    here->second.disk.reset();
    if (here->second.ram) {
      static_cast<void>(ram_->set_elsewhere(here->first, false));  // told of a removal later
      tell_places(here->first);
    } else {
      forget(here);
    }
  }
  // So that what others continue is told first.
  std::sort(list.begin(), list.end(),
            [](const SnapshotInfo& a, const SnapshotInfo& b) { return a.position < b.position; });
  for (const SnapshotInfo& info : list) {
    const auto [place, is_new] = known_.try_emplace(info.id);
    const bool was_there = std::exchange(place->second.disk, info).has_value();
    if (was_there) continue;
    if (is_new) {
      tell_new(info.id);
    } else {
      static_cast<void>(ram_->set_elsewhere(info.id, true));
      tell_places(info.id);
    }
  }
}

void SnapshotFeed::forget(Known::iterator place) {
  const SnapshotId id = place->first;
  known_.erase(place);
  // The last removal is why it is gone from both.
  auto eviction = ram_->why_gone(id);
  if (disk_ != nullptr) {
    const auto from_disk = disk_->why_gone(id);
    if (from_disk && (!eviction || from_disk->when_ms > eviction->when_ms)) eviction = from_disk;
  }
  tell(FeedRemoved{.id = id, .cause = eviction ? std::string(cause_name(eviction->cause)) : ""});
}

// --- telling

void SnapshotFeed::tell(const FeedEvent& event) {
  std::erase_if(watchers_, [&](const Watcher& watcher) { return !watcher(event); });
}

void SnapshotFeed::tell_new(const SnapshotId& id) {
  if (watchers_.empty()) return;
  const auto added = with_tokens(id, [&](const SnapshotId& base) { return known_.contains(base); });
  if (!added) {
    known_.erase(id);  // gone already: nobody hears of it
    return;
  }
  tell(*added);
}

void SnapshotFeed::tell_places(const SnapshotId& id) {
  if (watchers_.empty()) return;
  if (auto now = info(id)) tell(FeedAdded{.info = *now});
}

bool SnapshotFeed::tell_everything(const Watcher& watcher, std::vector<SnapshotId>& missing) const {
  FeedBegin begin{.instance_id = instance_id_};
  if (ram_ != nullptr) begin.identity = snapshot::serialize(ram_->identity());
  if (!watcher(begin)) return false;
  std::vector<SnapshotInfo> all = list();
  std::stable_sort(all.begin(), all.end(),
                   [](const SnapshotInfo& a, const SnapshotInfo& b) { return a.position < b.position; });
  std::unordered_set<SnapshotId, Hash128Hasher> told;
  for (const SnapshotInfo& each : all) {
    const auto added = with_tokens(each.id, [&](const SnapshotId& base) { return told.contains(base); });
    if (!added) {
      missing.push_back(each.id);
      continue;
    }
    told.insert(each.id);
    if (!watcher(*added)) return false;
  }
  return watcher(FeedComplete{});
}

std::optional<FeedAdded> SnapshotFeed::with_tokens(
    const SnapshotId& id, const std::function<bool(const SnapshotId&)>& may_be_base) const {
  const auto now = info(id);
  auto all = tokens(id);
  if (!now || !all) return std::nullopt;  // gone in the meantime
  FeedAdded added{.info = *now, .generated = std::move(all->generated)};
  const auto base = now->parent.is_zero() || !may_be_base(now->parent) ? std::nullopt : info(now->parent);
  if (base) {
    added.base = base->id;
    added.base_tokens = base->position;
  }
  added.tokens.assign(all->tokens.begin() + added.base_tokens, all->tokens.end());
  return added;
}

// --- looking

bool SnapshotFeed::on_disk(const SnapshotId& id) const {
  const auto place = known_.find(id);
  return place != known_.end() && place->second.disk.has_value();
}

uint32_t SnapshotFeed::count(Tier tier) const {
  return static_cast<uint32_t>(std::count_if(known_.begin(), known_.end(), [&](const auto& each) {
    return tier == Tier::kRam ? each.second.ram : each.second.disk.has_value();
  }));
}

std::optional<SnapshotInfo> SnapshotFeed::info(const SnapshotId& id) const {
  const auto place = known_.find(id);
  if (place == known_.end()) return std::nullopt;
  auto found = place->second.ram ? ram_->info(id) : place->second.disk;
  if (!found) return std::nullopt;
  found->in_ram = place->second.ram;
  found->on_disk = place->second.disk.has_value();
  return found;
}

std::vector<SnapshotInfo> SnapshotFeed::list() const {
  std::vector<SnapshotInfo> all;
  for (const auto& [id, places] : known_)
    if (auto each = info(id)) all.push_back(*each);
  std::sort(all.begin(), all.end(), [](const SnapshotInfo& a, const SnapshotInfo& b) {
    return std::tie(b.last_used_ms, b.position, a.id) < std::tie(a.last_used_ms, a.position, b.id);
  });
  return all;
}

Result<SnapshotFeed::Tokens> SnapshotFeed::tokens(const SnapshotId& id) const {
  const auto place = known_.find(id);
  if (place != known_.end() && !place->second.ram) {
    TRY(const snapshot::Manifest manifest, disk_->look(id));
    return Tokens{.tokens = snapshot::unpack_tokens(manifest.words),
                  .generated = snapshot::unpack_generated(manifest.words)};
  }
  if (ram_ == nullptr)
    return fail(Code::kNotFound, "no snapshot {}: no gpu-worker has attached yet", id.text());
  Tokens found;
  TRY(found.tokens, ram_->tokens(id));
  TRY(found.generated, ram_->generated(id));
  return found;
}

}  // namespace strata::cache_manager
