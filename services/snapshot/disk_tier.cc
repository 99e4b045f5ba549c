#include "services/snapshot/disk_tier.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "services/base/check.h"
#include "services/snapshot/ram_pool.h"

namespace strata::snapshot {
namespace {

// More than a header and what zstd can add to bytes that do not compress.
uint64_t footprint_max(uint64_t raw_bytes) {
  return extent_footprint(kObjectHeaderBytes + raw_bytes + raw_bytes / 128 + 512);
}

}  // namespace

// --- looking

const CatalogEntry* DiskTier::entry_of(const SnapshotId& id) const { return catalog_.find(id); }

Failure DiskTier::gone(const SnapshotId& id) const {
  const auto eviction = evictions_.find(id, options_.now_ms());
  if (!eviction) return fail(Code::kNotFound, "no snapshot {} on disk", id.text());
  return fail(Code::kNotFound, "no snapshot {} on disk: evicted ({})", id.text(),
              cause_name(eviction->cause));
}

bool DiskTier::contains(const SnapshotId& id) const {
  const std::lock_guard lock(mutex_);
  return entry_of(id) != nullptr;
}

std::optional<SnapshotInfo> DiskTier::info(const SnapshotId& id) const {
  const std::lock_guard lock(mutex_);
  const CatalogEntry* entry = entry_of(id);
  if (entry == nullptr) return std::nullopt;
  return catalog_.info(*entry, Tier::kDisk);
}

std::vector<SnapshotInfo> DiskTier::list() const {
  const std::lock_guard lock(mutex_);
  return catalog_.list(Tier::kDisk);
}

std::optional<Eviction> DiskTier::why_gone(const SnapshotId& id) const {
  const std::lock_guard lock(mutex_);
  return evictions_.find(id, options_.now_ms());
}

DiskCounters DiskTier::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

uint64_t DiskTier::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_locked();
}

uint64_t DiskTier::used_bytes_locked() const {
  uint64_t bytes = catalog_.bytes() + reserved_bytes_;
  for (const OtherIdentity& other : others_) bytes += other.bytes;
  return bytes;
}

std::string DiskTier::path_of(const ObjectName& name) const {
  const auto suffix = [&] {
    switch (name.kind) {
      case ObjectKind::kFixed:
        return "fixed";
      case ObjectKind::kTail:
        return "tail";
      case ObjectKind::kPage:
        return "page";
      default:
        return "snapshot";
    }
  };
  return fmt::format("{}/{}.{}", folder_, name.key.text(), suffix());
}

// --- room

// In the order of their last change: the model that was used longest ago first.
Status DiskTier::remove_other_identity() {
  const auto oldest = std::min_element(others_.begin(), others_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.changed, a.path) < std::tie(b.changed, b.path);
  });
  std::error_code error;
  std::filesystem::remove_all(oldest->path, error);
  if (error) return fail(Code::kPermissionDenied, "{}: cannot be removed: {}", oldest->path, error.message());
  others_.erase(oldest);
  return {};
}

Status DiskTier::make_room(uint64_t needed) {
  const auto shortage = [&] {
    const uint64_t wanted = used_bytes_locked() + needed;
    const uint64_t of_budget = wanted > options_.budget_bytes ? wanted - options_.budget_bytes : 0;
    const uint64_t free_wanted = needed + (needed > 0 ? options_.free_bytes_min : 0);
    const uint64_t free = options_.free_bytes();
    return std::max(of_budget, free_wanted > free ? free_wanted - free : 0);
  };
  const uint64_t missing = shortage();
  uint64_t removable = catalog_.bytes() - catalog_.pinned_bytes();
  for (const OtherIdentity& other : others_) removable += other.bytes;
  if (missing > removable) {
    ++counters_.refused_full;
    return fail(Code::kResourceExhausted,
                "{}: {} bytes needed, {} of the budget's {} used, {} free on the disk", options_.folder,
                needed, used_bytes_locked(), options_.budget_bytes, options_.free_bytes());
  }
  while (shortage() > 0) {
    if (!others_.empty()) {
      TRY_OK(remove_other_identity());
      continue;
    }
    const auto victim = catalog_.victim(options_.now_ms());
    if (!victim) {  // somebody else fills the disk while we clear it
      ++counters_.refused_full;
      return fail(Code::kResourceExhausted, "{}: {} free on the disk, nothing left to remove",
                  options_.folder, options_.free_bytes());
    }
    TRY_OK(remove_snapshot(victim->id, victim->diverged ? EvictionCause::kDiverged : EvictionCause::kBudget));
  }
  return {};
}

// The manifest first: whatever happens then, the snapshot does not exist any more.
Status DiskTier::remove_snapshot(const SnapshotId& id, EvictionCause cause) {
  const CatalogEntry& entry = *entry_of(id);
  const auto remove = [&](ObjectKind kind) {
    return options_.files->remove(path_of({.kind = kind, .key = id, .identity = identity_digest_}));
  };
  TRY_OK(remove(ObjectKind::kManifest));
  // What cannot be removed now is removed at the next start.
  static_cast<void>(remove(ObjectKind::kFixed));
  if (!entry.tail.empty()) static_cast<void>(remove(ObjectKind::kTail));
  evictions_.add({.id = id,
                  .tier = Tier::kDisk,
                  .cause = cause,
                  .when_ms = options_.now_ms(),
                  .position = entry.position,
                  .freed_bytes = catalog_.freed_bytes(entry)});
  ++counters_.evicted[static_cast<std::size_t>(cause)];
  const std::vector<Hash128> unused = catalog_.remove(id);
  remove_pages(unused);
  if (!index_->remove(id, unused).ok()) ++counters_.index_errors;
  return {};
}

void DiskTier::remove_pages(std::span<const Hash128> keys) {
  for (const Hash128& key : keys) {
    static_cast<void>(options_.files->remove(
        path_of({.kind = ObjectKind::kPage, .key = key, .identity = identity_digest_})));
  }
}

Status DiskTier::drop(const SnapshotId& id) {
  const std::lock_guard lock(mutex_);
  if (entry_of(id) == nullptr) return gone(id);
  return remove_snapshot(id, EvictionCause::kDropped);
}

Status DiskTier::touch(const SnapshotId& id) {
  const std::lock_guard lock(mutex_);
  CatalogEntry* entry = catalog_.find(id);
  if (entry == nullptr) return gone(id);
  entry->last_used_ms = options_.now_ms();
  if (!index_->touch(id, entry->last_used_ms).ok()) ++counters_.index_errors;
  return {};
}

// --- writing

Status DiskTier::check_content(const SnapshotContent& content) const {
  const StateIdentity& identity = options_.identity;
  if (content.manifest.seed != seed_) {
    return fail(Code::kFailedPrecondition, "{}: the snapshot's keys were made with another seed",
                options_.folder);
  }
  if (const Status valid = check_manifest(content.manifest, identity); !valid.ok())
    return fail(Code::kFailedPrecondition, "{}", valid.message());
  const bool sizes = content.fixed.size() == identity.fixed_bytes &&
                     content.tail.size() == content.manifest.tail_bytes &&
                     content.pages.size() == content.manifest.page_keys.size() &&
                     std::all_of(content.pages.begin(), content.pages.end(),
                                 [&](const auto& page) { return page.size() == identity.page_bytes; });
  if (!sizes)
    return fail(Code::kFailedPrecondition, "snapshot {}: bytes and manifest differ",
                content.manifest.id.text());
  return {};
}

Result<SnapshotInfo> DiskTier::write(const SnapshotContent& content, const Pace& pace) {
  const std::lock_guard one_at_a_time(writing_);
  TRY_OK(check_content(content));
  TRY(Writing writing, begin_writing(content));
  if (Status written = write_files(content, pace, writing); !written.ok()) {
    undo_writing(writing);
    return Failure(std::move(written));
  }
  return end_writing(content, writing);
}

Result<DiskTier::Writing> DiskTier::begin_writing(const SnapshotContent& content) {
  const Manifest& manifest = content.manifest;
  const std::lock_guard lock(mutex_);
  if (CatalogEntry* entry = catalog_.find(manifest.id)) {
    entry->last_used_ms = options_.now_ms();
    ++counters_.already_here;
    return fail(Code::kAlreadyExists, "snapshot {} is on disk already", manifest.id.text());
  }
  Writing writing;
  for (const Hash128& key : manifest.page_keys) {
    if (catalog_.find_page(key) == nullptr) break;
    writing.held.push_back(key);
  }
  const std::size_t new_pages = manifest.page_keys.size() - writing.held.size();
  const uint64_t needed = footprint_max(content.fixed.size()) +
                          new_pages * footprint_max(options_.identity.page_bytes) +
                          (content.tail.empty() ? 0 : footprint_max(content.tail.size())) +
                          footprint_max(serialize(manifest).size());
  if (needed > options_.budget_bytes) {
    ++counters_.refused_large;
    return fail(Code::kOutOfRange, "{}: {} bytes needed, the budget is {}", options_.folder, needed,
                options_.budget_bytes);
  }
  catalog_.hold_pages(writing.held);
  if (Status room = make_room(needed); !room.ok()) {
    remove_pages(catalog_.let_go_pages(writing.held));
    return Failure(std::move(room));
  }
  writing.reserved_bytes = needed;
  reserved_bytes_ += needed;
  return writing;
}

Result<uint64_t> DiskTier::write_one(const ObjectToWrite& object, const Pace& pace, Writing& writing) {
  DiskFiles& files = *options_.files;
  const std::string path = path_of(object.name);
  writing.files.push_back(path);
  TRY(const uint64_t bytes, write_new_file(files, path, [&](int fd, const std::string& temporary) {
        return write_object(files, fd, temporary, 0, object, pace);
      }));
  const std::lock_guard lock(mutex_);
  counters_.written_bytes += bytes;
  counters_.raw_bytes += object.raw.size();
  return extent_footprint(bytes);
}

Status DiskTier::write_files(const SnapshotContent& content, const Pace& pace, Writing& writing) {
  const Manifest& manifest = content.manifest;
  const auto object = [&](ObjectKind kind, const Hash128& key, std::span<const std::byte> raw,
                          uint64_t checksum) {
    return ObjectToWrite{.name = {.kind = kind, .key = key, .identity = identity_digest_},
                         .raw = raw,
                         .checksum = checksum,
                         .may_compress = options_.compress};
  };
  for (std::size_t i = writing.held.size(); i < content.pages.size(); ++i) {
    TRY(const uint64_t bytes, write_one(object(ObjectKind::kPage, manifest.page_keys[i], content.pages[i],
                                               manifest.page_checksums[i]),
                                        pace, writing));
    writing.page_bytes.push_back(bytes);
  }
  if (!content.tail.empty()) {
    TRY(const uint64_t bytes,
        write_one(object(ObjectKind::kTail, manifest.id, content.tail, manifest.tail_checksum), pace,
                  writing));
    writing.own_bytes += bytes;
  }
  // Its parts have checksums of their own, which the RAM tier checks; this one is for the file.
  TRY(const uint64_t fixed_bytes,
      write_one(object(ObjectKind::kFixed, manifest.id, content.fixed, checksum64(content.fixed)), pace,
                writing));
  // Everything has its name for good before the manifest names it.
  TRY_OK(options_.files->sync_folder(folder_));
  const std::vector<std::byte> text = serialize(manifest);
  TRY(const uint64_t manifest_bytes,
      write_one(object(ObjectKind::kManifest, manifest.id, text, checksum64(text)), pace, writing));
  writing.own_bytes += fixed_bytes + manifest_bytes;
  return options_.files->sync_folder(folder_);
}

SnapshotInfo DiskTier::end_writing(const SnapshotContent& content, Writing& writing) {
  const Manifest& manifest = content.manifest;
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= writing.reserved_bytes;
  EntryToInsert entry = entry_to_insert(manifest, writing.own_bytes);
  for (std::size_t i = 0; i < writing.page_bytes.size(); ++i)
    entry.pages[writing.held.size() + i].bytes = writing.page_bytes[i];
  const CatalogEntry& stored = catalog_.insert(std::move(entry));
  remove_pages(catalog_.let_go_pages(writing.held));
  evictions_.forget(manifest.id);
  if (!index_->put(manifest, options_.identity.page_tokens).ok()) ++counters_.index_errors;
  ++counters_.written;
  counters_.pages_shared += writing.held.size();
  return catalog_.info(stored, Tier::kDisk);
}

void DiskTier::undo_writing(Writing& writing) {
  // In reverse: the manifest first, if it was written.
  for (auto path = writing.files.rbegin(); path != writing.files.rend(); ++path)
    static_cast<void>(options_.files->remove(*path));
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= writing.reserved_bytes;
  remove_pages(catalog_.let_go_pages(writing.held));
  ++counters_.write_errors;
}

// --- reading

Result<Manifest> DiskTier::manifest(const SnapshotId& id) {
  TRY_OK(touch(id));
  return look(id);
}

Result<Manifest> DiskTier::look(const SnapshotId& id) const {
  const std::lock_guard lock(mutex_);
  const CatalogEntry* entry = entry_of(id);
  if (entry == nullptr) return gone(id);
  return catalog_.manifest(*entry, seed_);
}

Status DiskTier::read_fixed(const SnapshotId& id, std::span<std::byte> into) {
  return read(id, {.kind = ObjectKind::kFixed, .key = id, .identity = identity_digest_}, into);
}

Status DiskTier::read_tail(const SnapshotId& id, std::span<std::byte> into) {
  return read(id, {.kind = ObjectKind::kTail, .key = id, .identity = identity_digest_}, into);
}

Status DiskTier::read_page(const SnapshotId& id, uint32_t page_index, std::span<std::byte> into) {
  Hash128 key;
  {
    const std::lock_guard lock(mutex_);
    const CatalogEntry* entry = entry_of(id);
    if (entry == nullptr) return gone(id);
    if (page_index >= entry->pages.size()) {
      return fail(Code::kOutOfRange, "snapshot {}: page {} of {}", id.text(), page_index,
                  entry->pages.size());
    }
    key = entry->pages[page_index]->key;
  }
  return read(id, {.kind = ObjectKind::kPage, .key = key, .identity = identity_digest_}, into);
}

Status DiskTier::read(const SnapshotId& id, const ObjectName& name, std::span<std::byte> into) {
  Status result = read_object_file(path_of(name), name, into);
  const std::lock_guard lock(mutex_);
  if (entry_of(id) == nullptr) return gone(id);  // removed while it was being read
  if (result.ok()) {
    counters_.read_bytes += into.size();
    return {};
  }
  if (result.code() == Code::kNotFound) result = Status(Code::kDataLoss, result.message());
  if (result.code() == Code::kDataLoss) drop_damaged(name);
  return result;
}

void DiskTier::drop_damaged(const ObjectName& name) {
  std::vector<SnapshotId> needing;
  for (const auto& [id, entry] : catalog_.entries()) {
    const bool needs = name.kind == ObjectKind::kPage
                           ? std::any_of(entry.pages.begin(), entry.pages.end(),
                                         [&](const CatalogPage* page) { return page->key == name.key; })
                           : id == name.key;
    if (needs) needing.push_back(id);
  }
  for (const SnapshotId& id : needing) {
    // Its manifest cannot be removed: it stays, and whoever reads it learns the same again.
    if (remove_snapshot(id, EvictionCause::kDamaged).ok()) ++counters_.damaged;
  }
}

}  // namespace strata::snapshot
