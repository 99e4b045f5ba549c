#include "services/snapshot/snapshot_store.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/base/check.h"

namespace strata::snapshot {

Result<SnapshotStore> SnapshotStore::create(StoreOptions options, RamPool pool) {
  TRY_OK(check_identity(options.identity));
  CHECK(options.now_ms != nullptr);
  return SnapshotStore(std::move(options), std::move(pool));
}

SnapshotStore::SnapshotStore(StoreOptions options, RamPool pool)
    : options_(std::move(options)),
      identity_digest_(digest(options_.identity)),
      keys_(options_.seed, identity_digest_, options_.identity.page_tokens),
      pool_(std::move(pool)),
      catalog_(std::make_unique<Catalog>(options_.identity.page_tokens, options_.value)),
      evictions_(options_.evictions) {}

// --- storing

Status SnapshotStore::check_request(const StoreRequest& request) const {
  if (request.name_space.is_zero()) return fail(Code::kInvalidArgument, "snapshot: no namespace");
  if (!std::isfinite(request.cost_seconds) || request.cost_seconds < 0) {
    return fail(Code::kInvalidArgument, "snapshot: cost of {} seconds", request.cost_seconds);
  }
  const bool has_tail = request.tokens.size() % options_.identity.page_tokens != 0;
  if (has_tail != (request.tail_bytes > 0) || request.tail_bytes > options_.identity.page_bytes) {
    return fail(Code::kInvalidArgument, "snapshot: {} bytes of tail for {} tokens in pages of {} ({} bytes)",
                request.tail_bytes, request.tokens.size(), options_.identity.page_tokens,
                options_.identity.page_bytes);
  }
  return {};
}

Result<StateKeys> SnapshotStore::keys_of(const Hash128& name_space, std::span<const int32_t> tokens,
                                         std::span<const TokenRange> generated) const {
  TRY(const std::vector<TokenWord> words, pack_tokens(tokens, generated));
  return keys_.keys(name_space, words);
}

Result<Reservation> SnapshotStore::reserve(const StoreRequest& request) {
  const StateIdentity& identity = options_.identity;
  if (request.identity != identity_digest_) {
    ++counters_.refused_identity;
    return fail(Code::kFailedPrecondition, "snapshot of identity {}, this store has {}",
                request.identity.text(), identity_digest_.text());
  }
  TRY(std::vector<TokenWord> words, pack_tokens(request.tokens, request.generated));
  TRY_OK(check_request(request));
  const StateKeys keys = keys_.keys(request.name_space, words);
  const int64_t now_ms = options_.now_ms();
  if (CatalogEntry* entry = catalog_->find(keys.id)) {
    entry->hidden = false;  // dropped and wanted again while somebody reads it
    entry->last_used_ms = now_ms;
    ++counters_.already_here;
    return fail(Code::kAlreadyExists, "snapshot {} is stored already", keys.id.text());
  }

  // Whoever has a page has those before it, so the known ones come first.
  const auto first_new = std::find_if(keys.pages.begin(), keys.pages.end(), [&](const Hash128& key) {
    return catalog_->find_page(key) == nullptr;
  });
  const auto shared = static_cast<std::size_t>(first_new - keys.pages.begin());
  std::vector<uint64_t> sizes{identity.fixed_bytes};
  sizes.insert(sizes.end(), keys.pages.size() - shared, identity.page_bytes);
  if (request.tail_bytes > 0) sizes.push_back(request.tail_bytes);
  uint64_t needed = 0;
  for (uint64_t size : sizes) needed += extent_footprint(size);

  Pending pending;
  pending.owner = request.owner;
  pending.held.assign(keys.pages.begin(), first_new);
  pending.entry = {
      .id = keys.id,
      .name_space = request.name_space,
      .kind = request.kind,
      .cost_seconds = request.cost_seconds,
      .created_ms = now_ms,
      .last_used_ms = now_ms,
      .words = std::move(words),
      .tail_bytes = request.tail_bytes,
      .own_bytes = extent_footprint(identity.fixed_bytes) + extent_footprint(request.tail_bytes)};
  for (const Hash128& key : keys.pages)
    pending.entry.pages.push_back({.key = key, .bytes = extent_footprint(identity.page_bytes)});

  catalog_->hold_pages(pending.held);
  const auto let_go = [&] { give_back_pages(catalog_->let_go_pages(pending.held)); };
  const uint64_t held_bytes = shared * extent_footprint(identity.page_bytes);
  if (Status room = make_room(needed, held_bytes, pending.entry, keys.pages); !room.ok()) {
    let_go();
    return Failure(std::move(room));
  }
  auto extents = pool_.reserve(sizes);
  if (!extents) {
    ++counters_.refused_full;
    let_go();
    return forward_failure(std::move(extents));
  }

  Reservation& reservation = pending.reservation;
  reservation.ticket = next_ticket_++;
  reservation.id = keys.id;
  reservation.fixed = extents->front();
  reservation.shared_pages = static_cast<uint32_t>(shared);
  const auto token_count = static_cast<uint32_t>(request.tokens.size());
  for (std::size_t i = 1; i < extents->size(); ++i) {
    const auto page = static_cast<uint32_t>(shared + i - 1);
    const uint32_t tokens = std::min(identity.page_tokens, token_count - page * identity.page_tokens);
    reservation.pages.push_back({.page_index = page, .tokens = tokens, .extent = (*extents)[i]});
  }
  return pending_.emplace(reservation.ticket, std::move(pending)).first->second.reservation;
}

Status SnapshotStore::make_room(uint64_t needed, uint64_t held_bytes, const EntryToInsert& entry,
                                std::span<const Hash128> keys) {
  if (needed > pool_.budget_bytes() || held_bytes > pool_.budget_bytes() - needed) {
    ++counters_.refused_large;
    return fail(Code::kOutOfRange, "snapshot of {} tokens needs {} bytes, the budget is {}",
                entry.words.size(), needed + held_bytes, pool_.budget_bytes());
  }
  const uint64_t room = pool_.room();
  if (needed <= room) return {};
  const uint64_t shortage = needed - room;
  const uint64_t removable = catalog_->bytes() - catalog_->pinned_bytes();
  if (shortage > removable) {
    ++counters_.refused_full;
    return fail(Code::kResourceExhausted,
                "snapshot of {} tokens needs {} bytes; {} are free and {} could be made free",
                entry.words.size(), needed, room, removable);
  }
  const bool floor_decides = pool_.budget_bytes() - pool_.used_bytes() > room;
  const int64_t now_ms = options_.now_ms();
  const uint64_t used_before = pool_.used_bytes();
  while (used_before - pool_.used_bytes() < shortage) {
    const auto victim = catalog_->victim(now_ms);
    CHECK(victim.has_value(), "{} of {} bytes are pinned", catalog_->pinned_bytes(), catalog_->bytes());
    // What only might be useful does not push out what is worth more.
    if (entry.kind == SnapshotKind::kInterval && !victim->diverged &&
        victim->value > catalog_->value_of_new(entry.kind, entry.cost_seconds, needed, keys, entry.words,
                                               entry.name_space)) {
      ++counters_.refused_value;
      return fail(Code::kResourceExhausted, "checkpoint of {} tokens is worth less than what is stored",
                  entry.words.size());
    }
    const EvictionCause for_room = floor_decides ? EvictionCause::kFloor : EvictionCause::kBudget;
    evict(victim->id, victim->diverged ? EvictionCause::kDiverged : for_room);
  }
  return {};
}

Result<SnapshotInfo> SnapshotStore::commit(Ticket reservation, const CopyChecksums& checksums) {
  const auto place = pending_.find(reservation);
  if (place == pending_.end()) return fail(Code::kNotFound, "no reservation {}", reservation);
  const std::vector<PageToCopy>& copied = place->second.reservation.pages;
  if (checksums.parts.size() != options_.identity.parts.size() || checksums.pages.size() != copied.size()) {
    return fail(Code::kInvalidArgument, "{} and {} checksums for {} parts and {} pages",
                checksums.parts.size(), checksums.pages.size(), options_.identity.parts.size(),
                copied.size());
  }
  Pending pending = std::move(place->second);
  pending_.erase(place);
  EntryToInsert& entry = pending.entry;
  const SnapshotId id = entry.id;
  if (catalog_->find(id) != nullptr) {  // two copied the same state at the same time
    pool_.give_back(pending.reservation.fixed);
    for (const PageToCopy& page : pending.reservation.pages) pool_.give_back(page.extent);
    give_back_pages(catalog_->let_go_pages(pending.held));
    ++counters_.already_here;
    return catalog_->info(*catalog_->find(id), Tier::kRam);
  }

  Extents own{.fixed = pending.reservation.fixed};
  entry.part_checksums = checksums.parts;
  for (std::size_t i = 0; i < pending.reservation.pages.size(); ++i) {
    const PageToCopy& page = pending.reservation.pages[i];
    if (page.page_index == entry.pages.size()) {
      own.tail = page.extent;
      entry.tail_checksum = checksums.pages[i];
      continue;
    }
    entry.pages[page.page_index].checksum = checksums.pages[i];
    // Another snapshot may have brought the page in the meantime.
    const bool is_new = page_extents_.emplace(entry.pages[page.page_index].key, page.extent).second;
    if (is_new) {
      ++counters_.pages_copied;
    } else {
      pool_.give_back(page.extent);
    }
  }
  counters_.pages_shared += pending.reservation.shared_pages;
  extents_.emplace(id, own);
  CatalogEntry& stored = catalog_->insert(std::move(entry));
  give_back_pages(catalog_->let_go_pages(pending.held));
  evictions_.forget(id);
  ++counters_.stored;
  // Not itself: it could be the one worth least.
  catalog_->pin(stored);
  limit_history(stored.history);
  catalog_->unpin(stored);
  return catalog_->info(stored, Tier::kRam);
}

void SnapshotStore::limit_history(const Hash128& history) {
  if (options_.per_history_max == 0) return;
  while (catalog_->history_size(history) > options_.per_history_max) {
    const auto victim = catalog_->victim_of_history(history, options_.now_ms());
    if (!victim) return;  // all of them are open
    evict(victim->id, victim->diverged ? EvictionCause::kDiverged : EvictionCause::kHistory);
  }
}

Status SnapshotStore::abandon(Ticket reservation) {
  const auto place = pending_.find(reservation);
  if (place == pending_.end()) return fail(Code::kNotFound, "no reservation {}", reservation);
  const Pending pending = std::move(place->second);
  pending_.erase(place);
  pool_.give_back(pending.reservation.fixed);
  for (const PageToCopy& page : pending.reservation.pages) pool_.give_back(page.extent);
  give_back_pages(catalog_->let_go_pages(pending.held));
  return {};
}

// --- reading

Result<OpenSnapshot> SnapshotStore::open(const SnapshotId& id, uint64_t owner) {
  if (visible(id) == nullptr) return gone(id);
  CatalogEntry& entry = *catalog_->find(id);
  catalog_->pin(entry);
  entry.last_used_ms = options_.now_ms();
  const Extents& own = extents_.at(id);
  OpenSnapshot snapshot{.ticket = next_ticket_++,
                        .id = id,
                        .position = entry.position,
                        .fixed = own.fixed,
                        .part_checksums = entry.part_checksums};
  snapshot.pages.reserve(entry.pages.size() + 1);
  for (const CatalogPage* page : entry.pages) {
    snapshot.pages.push_back({.page_index = static_cast<uint32_t>(snapshot.pages.size()),
                              .tokens = options_.identity.page_tokens,
                              .extent = page_extents_.at(page->key),
                              .checksum = page->checksum});
  }
  if (!entry.tail.empty()) {
    snapshot.pages.push_back({.page_index = static_cast<uint32_t>(snapshot.pages.size()),
                              .tokens = static_cast<uint32_t>(entry.tail.size()),
                              .extent = own.tail,
                              .checksum = entry.tail_checksum});
  }
  opened_.emplace(snapshot.ticket, Opened{.id = id, .owner = owner});
  ++counters_.opened;
  return snapshot;
}

Status SnapshotStore::release(Ticket open) {
  const auto place = opened_.find(open);
  if (place == opened_.end()) return fail(Code::kNotFound, "no open snapshot {}", open);
  CatalogEntry& entry = *catalog_->find(place->second.id);
  opened_.erase(place);
  catalog_->unpin(entry);
  if (entry.hidden && entry.pins == 0) {
    const auto known = evictions_.find(entry.id, options_.now_ms());
    evict(entry.id, known ? known->cause : EvictionCause::kDropped);
  }
  return {};
}

void SnapshotStore::release_owner(uint64_t owner) {
  std::vector<Ticket> reservations;
  for (const auto& [ticket, pending] : pending_)
    if (pending.owner == owner) reservations.push_back(ticket);
  std::vector<Ticket> opened;
  for (const auto& [ticket, open] : opened_)
    if (open.owner == owner) opened.push_back(ticket);
  for (Ticket ticket : reservations) CHECK(abandon(ticket).ok());
  for (Ticket ticket : opened) CHECK(release(ticket).ok());
}

Status SnapshotStore::verify(const OpenSnapshot& snapshot) const {
  if (!opened_.contains(snapshot.ticket))
    return fail(Code::kNotFound, "no open snapshot {}", snapshot.ticket);
  TRY_OK(check_parts(options_.identity, pool_.bytes(snapshot.fixed), snapshot.part_checksums));
  for (const StoredPage& page : snapshot.pages) {
    const uint64_t found = checksum64(pool_.bytes(page.extent));
    if (found != page.checksum) {
      return fail(Code::kDataLoss, "snapshot {}: page {}: checksum {:016x}, expected {:016x}",
                  snapshot.id.text(), page.page_index, found, page.checksum);
    }
  }
  return {};
}

// --- removing

void SnapshotStore::give_back_pages(std::span<const Hash128> keys) {
  for (const Hash128& key : keys) {
    const auto extent = page_extents_.find(key);
    pool_.give_back(extent->second);
    page_extents_.erase(extent);
  }
}

void SnapshotStore::evict(const SnapshotId& id, EvictionCause cause) {
  const CatalogEntry& entry = *catalog_->find(id);
  evictions_.add({.id = id,
                  .tier = Tier::kRam,
                  .cause = cause,
                  .when_ms = options_.now_ms(),
                  .position = entry.position,
                  .freed_bytes = catalog_->freed_bytes(entry)});
  if (!entry.hidden)
    ++counters_.evicted[static_cast<std::size_t>(cause)];  // a hidden one was counted when it was dropped
  const auto own = extents_.find(id);
  pool_.give_back(own->second.fixed);
  if (own->second.tail.bytes > 0) pool_.give_back(own->second.tail);
  extents_.erase(own);
  give_back_pages(catalog_->remove(id));
}

Status SnapshotStore::drop(const SnapshotId& id, EvictionCause cause) {
  if (visible(id) == nullptr) return gone(id);
  CatalogEntry& entry = *catalog_->find(id);
  if (entry.pins == 0) {
    evict(id, cause);
    return {};
  }
  entry.hidden = true;
  ++counters_.evicted[static_cast<std::size_t>(cause)];
  evictions_.add({.id = id,
                  .tier = Tier::kRam,
                  .cause = cause,
                  .when_ms = options_.now_ms(),
                  .position = entry.position});
  return {};
}

uint64_t SnapshotStore::relieve_memory() {
  const uint64_t wanted = pool_.bytes_under_floor();
  const uint64_t used_before = pool_.used_bytes();
  const int64_t now_ms = options_.now_ms();
  while (used_before - pool_.used_bytes() < wanted) {
    const auto victim = catalog_->victim(now_ms);
    if (!victim) break;
    evict(victim->id, EvictionCause::kFloor);
  }
  return used_before - pool_.used_bytes();
}

Status SnapshotStore::touch(const SnapshotId& id) {
  if (visible(id) == nullptr) return gone(id);
  catalog_->find(id)->last_used_ms = options_.now_ms();
  return {};
}

Status SnapshotStore::set_elsewhere(const SnapshotId& id, bool elsewhere) {
  if (visible(id) == nullptr) return gone(id);
  catalog_->find(id)->elsewhere = elsewhere;
  return {};
}

// --- looking

const CatalogEntry* SnapshotStore::visible(const SnapshotId& id) const {
  const CatalogEntry* entry = std::as_const(*catalog_).find(id);
  return entry != nullptr && !entry->hidden ? entry : nullptr;
}

Failure SnapshotStore::gone(const SnapshotId& id) const {
  const auto eviction = why_gone(id);
  if (!eviction) return fail(Code::kNotFound, "no snapshot {}", id.text());
  return fail(Code::kNotFound, "no snapshot {}: evicted ({})", id.text(), cause_name(eviction->cause));
}

std::optional<SnapshotInfo> SnapshotStore::info(const SnapshotId& id) const {
  const CatalogEntry* entry = visible(id);
  if (entry == nullptr) return std::nullopt;
  return catalog_->info(*entry, Tier::kRam);
}

Result<std::vector<int32_t>> SnapshotStore::tokens(const SnapshotId& id) const {
  const CatalogEntry* entry = visible(id);
  if (entry == nullptr) return gone(id);
  return unpack_tokens(catalog_->words(*entry));
}

Result<std::vector<TokenRange>> SnapshotStore::generated(const SnapshotId& id) const {
  const CatalogEntry* entry = visible(id);
  if (entry == nullptr) return gone(id);
  return unpack_generated(catalog_->words(*entry));
}

std::optional<Eviction> SnapshotStore::why_gone(const SnapshotId& id) const {
  return evictions_.find(id, options_.now_ms());
}

Result<SnapshotContent> SnapshotStore::content(const OpenSnapshot& snapshot) const {
  if (!opened_.contains(snapshot.ticket))
    return fail(Code::kNotFound, "no open snapshot {}", snapshot.ticket);
  const CatalogEntry& entry = *std::as_const(*catalog_).find(snapshot.id);
  SnapshotContent content;
  content.manifest = catalog_->manifest(entry, options_.seed);
  content.fixed = pool_.bytes(snapshot.fixed);
  for (const StoredPage& page : snapshot.pages) {
    if (page.page_index < entry.pages.size()) {
      content.pages.push_back(pool_.bytes(page.extent));
    } else {
      content.tail = pool_.bytes(page.extent);
    }
  }
  return content;
}

void SnapshotStore::check_books() const {
  uint64_t reserved = 0;
  for (const auto& [ticket, pending] : pending_) {
    reserved += extent_footprint(pending.reservation.fixed.bytes);
    for (const PageToCopy& page : pending.reservation.pages) reserved += extent_footprint(page.extent.bytes);
  }
  CHECK(catalog_->bytes() + reserved == pool_.used_bytes(), "{} stored, {} reserved, {} used",
        catalog_->bytes(), reserved, pool_.used_bytes());
  CHECK(pool_.used_bytes() <= pool_.budget_bytes());
  CHECK(page_extents_.size() == catalog_->page_count(), "{} and {} pages", page_extents_.size(),
        catalog_->page_count());
  CHECK(extents_.size() == catalog_->entries().size());
  std::vector<Extent> all;
  for (const auto& [key, extent] : page_extents_) all.push_back(extent);
  for (const auto& [id, own] : extents_) {
    all.push_back(own.fixed);
    if (own.tail.bytes > 0) all.push_back(own.tail);
  }
  for (const auto& [ticket, pending] : pending_) {
    all.push_back(pending.reservation.fixed);
    for (const PageToCopy& page : pending.reservation.pages) all.push_back(page.extent);
  }
  std::sort(all.begin(), all.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < all.size(); ++i)
    CHECK(all[i - 1].offset + all[i - 1].bytes <= all[i].offset, "extents at {} and {} overlap",
          all[i - 1].offset, all[i].offset);
}

}  // namespace strata::snapshot
