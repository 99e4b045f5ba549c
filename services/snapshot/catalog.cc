#include "services/snapshot/catalog.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "services/base/check.h"

namespace strata::snapshot {
namespace {

void erase_pointer(std::vector<CatalogEntry*>& list, const CatalogEntry* entry) {
  const auto found = std::find(list.begin(), list.end(), entry);
  CHECK(found != list.end());
  *found = list.back();
  list.pop_back();
}

void erase_from(std::unordered_map<Hash128, std::vector<CatalogEntry*>, Hash128Hasher>& lists,
                const Hash128& key, const CatalogEntry* entry) {
  const auto list = lists.find(key);
  CHECK(list != lists.end());
  erase_pointer(list->second, entry);
  if (list->second.empty()) lists.erase(list);
}

bool later(const CatalogEntry& a, const CatalogEntry& b) {
  return std::tie(a.created_ms, a.position, a.id) > std::tie(b.created_ms, b.position, b.id);
}

}  // namespace

EntryToInsert entry_to_insert(const Manifest& manifest, uint64_t own_bytes) {
  EntryToInsert entry{.id = manifest.id,
                      .name_space = manifest.name_space,
                      .kind = manifest.kind,
                      .cost_seconds = manifest.cost_seconds,
                      .created_ms = manifest.created_ms,
                      .last_used_ms = manifest.last_used_ms,
                      .words = manifest.words,
                      .part_checksums = manifest.part_checksums,
                      .tail_bytes = manifest.tail_bytes,
                      .tail_checksum = manifest.tail_checksum,
                      .own_bytes = own_bytes};
  for (std::size_t i = 0; i < manifest.page_keys.size(); ++i)
    entry.pages.push_back({.key = manifest.page_keys[i], .bytes = 0, .checksum = manifest.page_checksums[i]});
  return entry;
}

Catalog::Catalog(uint32_t page_tokens, const ValueOptions& value) : page_tokens_(page_tokens), value_(value) {
  CHECK(page_tokens > 0 && value.half_life_ms > 0);
}

// --- inserting and removing

CatalogEntry& Catalog::insert(EntryToInsert insertion) {
  const auto [place, is_new] = entries_.try_emplace(insertion.id);
  CHECK(is_new, "snapshot {} is here already", insertion.id.text());
  const std::span<const TokenWord> words(insertion.words);
  CHECK(insertion.pages.size() == words.size() / page_tokens_, "{} pages for {} tokens",
        insertion.pages.size(), words.size());
  CatalogEntry& entry = place->second;
  entry.id = insertion.id;
  entry.name_space = insertion.name_space;
  entry.position = static_cast<uint32_t>(words.size());
  entry.kind = insertion.kind;
  entry.cost_seconds = insertion.cost_seconds;
  entry.created_ms = insertion.created_ms;
  entry.last_used_ms = insertion.last_used_ms;
  entry.part_checksums = std::move(insertion.part_checksums);
  entry.tail_bytes = insertion.tail_bytes;
  entry.tail_checksum = insertion.tail_checksum;
  entry.own_bytes = insertion.own_bytes;
  entry.pages.reserve(insertion.pages.size());
  entry.page_ends.reserve(insertion.pages.size());
  uint64_t page_end = 0;
  for (std::size_t i = 0; i < insertion.pages.size(); ++i) {
    entry.pages.push_back(&refer(insertion.pages[i], words.subspan(i * page_tokens_, page_tokens_)));
    entry.page_ends.push_back(page_end += entry.pages.back()->bytes);
  }
  const auto tail = words.subspan(entry.pages.size() * page_tokens_);
  entry.tail.assign(tail.begin(), tail.end());
  bytes_ += entry.own_bytes;
  metadata_bytes_ += metadata_of(entry);
  link(entry);
  join_history(entry);
  return entry;
}

std::vector<Hash128> Catalog::remove(const SnapshotId& id) {
  const auto place = entries_.find(id);
  CHECK(place != entries_.end() && place->second.pins == 0, "snapshot {}", id.text());
  CatalogEntry& entry = place->second;
  leave_history(entry);
  unlink(entry);
  std::vector<Hash128> unused;
  for (CatalogPage* page : entry.pages) {
    const Hash128 key = page->key;
    if (release(*page)) unused.push_back(key);
  }
  bytes_ -= entry.own_bytes;
  metadata_bytes_ -= metadata_of(entry);
  entries_.erase(place);
  return unused;
}

CatalogEntry* Catalog::find(const SnapshotId& id) {
  const auto place = entries_.find(id);
  return place == entries_.end() ? nullptr : &place->second;
}

const CatalogEntry* Catalog::find(const SnapshotId& id) const {
  const auto place = entries_.find(id);
  return place == entries_.end() ? nullptr : &place->second;
}

const CatalogPage* Catalog::find_page(const Hash128& key) const {
  const auto place = pages_.find(key);
  return place == pages_.end() ? nullptr : &place->second;
}

CatalogPage& Catalog::refer(const PageToInsert& page, std::span<const TokenWord> words) {
  const auto [place, is_new] = pages_.try_emplace(page.key);
  CatalogPage& record = place->second;
  if (is_new) {
    record.key = page.key;
    record.bytes = page.bytes;
    record.checksum = page.checksum;
    record.words.assign(words.begin(), words.end());
    bytes_ += record.bytes;
    metadata_bytes_ += sizeof record + words.size_bytes();
  }
  ++record.references;
  return record;
}

bool Catalog::release(CatalogPage& page) {
  CHECK(page.references > 0);
  if (--page.references > 0) return false;
  CHECK(page.pins == 0);
  bytes_ -= page.bytes;
  metadata_bytes_ -= sizeof page + std::span(page.words).size_bytes();
  pages_.erase(Hash128(page.key));
  return true;
}

// --- pins and holds

void Catalog::pin_page(CatalogPage& page) {
  if (page.pins++ == 0) pinned_bytes_ += page.bytes;
}

void Catalog::unpin_page(CatalogPage& page) {
  CHECK(page.pins > 0);
  if (--page.pins == 0) pinned_bytes_ -= page.bytes;
}

void Catalog::pin(CatalogEntry& entry) {
  if (entry.pins++ > 0) return;
  pinned_bytes_ += entry.own_bytes;
  for (CatalogPage* page : entry.pages) pin_page(*page);
}

void Catalog::unpin(CatalogEntry& entry) {
  CHECK(entry.pins > 0);
  if (--entry.pins > 0) return;
  pinned_bytes_ -= entry.own_bytes;
  for (CatalogPage* page : entry.pages) unpin_page(*page);
}

void Catalog::hold_pages(std::span<const Hash128> keys) {
  for (const Hash128& key : keys) {
    CatalogPage& page = pages_.at(key);
    ++page.references;
    pin_page(page);
  }
}

std::vector<Hash128> Catalog::let_go_pages(std::span<const Hash128> keys) {
  std::vector<Hash128> unused;
  for (const Hash128& key : keys) {
    CatalogPage& page = pages_.at(key);
    unpin_page(page);
    if (release(page)) unused.push_back(key);
  }
  return unused;
}

// --- the forest

Hash128 Catalog::end_key(const CatalogEntry& entry) {
  return entry.pages.empty() ? entry.name_space : entry.pages.back()->key;
}

bool Catalog::is_prefix(const CatalogEntry& shorter, const CatalogEntry& longer) const {
  const std::size_t pages = shorter.pages.size();
  if (shorter.name_space != longer.name_space || pages > longer.pages.size()) return false;
  // A page's key stands for all tokens up to its end, so the last one says it for those before.
  if (pages > 0 && shorter.pages[pages - 1] != longer.pages[pages - 1]) return false;
  const auto& next = pages < longer.pages.size() ? longer.pages[pages]->words : longer.tail;
  return shorter.tail.size() <= next.size() &&
         std::equal(shorter.tail.begin(), shorter.tail.end(), next.begin());
}

CatalogEntry* Catalog::longest_prefix(const CatalogEntry& of) const {
  for (std::size_t pages = of.pages.size() + 1; pages-- > 0;) {
    const auto list = ends_.find(pages == 0 ? of.name_space : of.pages[pages - 1]->key);
    if (list == ends_.end()) continue;
    CatalogEntry* longest = nullptr;
    for (CatalogEntry* entry : list->second) {
      const bool longer = longest == nullptr || entry->position > longest->position;
      if (entry->position < of.position && longer && is_prefix(*entry, of)) longest = entry;
    }
    if (longest != nullptr) return longest;
  }
  return nullptr;
}

std::vector<CatalogEntry*>& Catalog::siblings_of(const CatalogEntry& entry) {
  return entry.parent != nullptr ? entry.parent->children : heads_[entry.name_space];
}

void Catalog::link(CatalogEntry& entry) {
  entry.parent = longest_prefix(entry);
  std::vector<CatalogEntry*>& siblings = siblings_of(entry);
  // Those that continue the new one were its parent's so far.
  const auto continues = std::stable_partition(
      siblings.begin(), siblings.end(), [&](const CatalogEntry* other) { return !is_prefix(entry, *other); });
  entry.children.assign(continues, siblings.end());
  siblings.erase(continues, siblings.end());
  siblings.push_back(&entry);
  for (CatalogEntry* child : entry.children) child->parent = &entry;
  ends_[end_key(entry)].push_back(&entry);
}

void Catalog::unlink(CatalogEntry& entry) {
  erase_from(ends_, end_key(entry), &entry);
  std::vector<CatalogEntry*>& siblings = siblings_of(entry);
  erase_pointer(siblings, &entry);
  for (CatalogEntry* child : entry.children) child->parent = entry.parent;
  siblings.insert(siblings.end(), entry.children.begin(), entry.children.end());
  if (entry.parent == nullptr && siblings.empty()) heads_.erase(entry.name_space);
}

void Catalog::join_history(CatalogEntry& entry) {
  if (entry.parent != nullptr && entry.parent->kind != SnapshotKind::kRoot) {
    entry.history = entry.parent->history;
  } else if (entry.kind != SnapshotKind::kRoot && !entry.children.empty()) {
    entry.history = entry.children.front()->history;  // an earlier beginning of what is known
  } else {
    entry.history = entry.id;
  }
  History& history = histories_[entry.history];
  history.members.push_back(&entry);
  if (history.latest == nullptr || later(entry, *history.latest)) history.latest = &entry;
}

void Catalog::leave_history(CatalogEntry& entry) {
  const auto place = histories_.find(entry.history);
  History& history = place->second;
  erase_pointer(history.members, &entry);
  if (history.members.empty()) {
    histories_.erase(place);
  } else if (history.latest == &entry) {
    history.latest = *std::max_element(history.members.begin(), history.members.end(),
                                       [](const auto* a, const auto* b) { return later(*b, *a); });
  }
}

// --- values

uint64_t Catalog::freed_bytes(const CatalogEntry& entry) const {
  // Whoever refers to a page refers to those before it, too: its own pages are the last ones.
  const auto first_own = std::partition_point(entry.pages.begin(), entry.pages.end(),
                                              [](const CatalogPage* page) { return page->references > 1; });
  const auto shared = static_cast<std::size_t>(first_own - entry.pages.begin());
  const uint64_t all = entry.page_ends.empty() ? 0 : entry.page_ends.back();
  return entry.own_bytes + all - (shared > 0 ? entry.page_ends[shared - 1] : 0);
}

bool Catalog::diverged(const CatalogEntry& entry) const {
  const CatalogEntry& latest = *histories_.at(entry.history).latest;
  return entry.last_used_ms < latest.created_ms && !is_prefix(entry, latest) && !is_prefix(latest, entry);
}

Catalog::Victim Catalog::judge(const CatalogEntry& entry, int64_t now_ms) const {
  const double parent_seconds = entry.parent != nullptr ? entry.parent->cost_seconds : 0;
  const uint64_t freed = freed_bytes(entry);
  return {.id = entry.id,
          .diverged = diverged(entry),
          .value = snapshot_value({.kind = entry.kind,
                                   .leaf = entry.children.empty(),
                                   .elsewhere = entry.elsewhere,
                                   .seconds_lost = entry.cost_seconds - parent_seconds,
                                   .idle_ms = now_ms - entry.last_used_ms,
                                   .freed_bytes = freed},
                                  value_),
          .freed_bytes = freed};
}

bool Catalog::goes_before(const Victim& a, int64_t a_used_ms, const Victim& b, int64_t b_used_ms) {
  if (a.diverged != b.diverged) return a.diverged;
  return std::tie(a.value, a_used_ms, a.id) < std::tie(b.value, b_used_ms, b.id);
}

namespace {
const CatalogEntry& entry_of(const CatalogEntry* entry) { return *entry; }
const CatalogEntry& entry_of(const std::pair<const SnapshotId, CatalogEntry>& item) { return item.second; }
}  // namespace

template <class Entries>
std::optional<Catalog::Victim> Catalog::least(const Entries& entries, int64_t now_ms) const {
  std::optional<Victim> best;
  int64_t best_used_ms = 0;
  for (const auto& item : entries) {
    const CatalogEntry& entry = entry_of(item);
    if (entry.pins > 0) continue;
    const Victim candidate = judge(entry, now_ms);
    if (best && !goes_before(candidate, entry.last_used_ms, *best, best_used_ms)) continue;
    best = candidate;
    best_used_ms = entry.last_used_ms;
  }
  return best;
}

std::optional<Catalog::Victim> Catalog::victim(int64_t now_ms) const { return least(entries_, now_ms); }

std::optional<Catalog::Victim> Catalog::victim_of_history(const Hash128& history, int64_t now_ms) const {
  const auto place = histories_.find(history);
  if (place == histories_.end()) return std::nullopt;
  return least(place->second.members, now_ms);
}

uint32_t Catalog::history_size(const Hash128& history) const {
  const auto place = histories_.find(history);
  return place == histories_.end() ? 0 : static_cast<uint32_t>(place->second.members.size());
}

double Catalog::value_of_new(SnapshotKind kind, double cost_seconds, uint64_t own_bytes,
                             std::span<const Hash128> page_keys, std::span<const TokenWord> words,
                             const Hash128& name_space) {
  // An entry that is in no list: its known pages, and what follows them as its tail.
  CatalogEntry entry;
  entry.name_space = name_space;
  entry.position = static_cast<uint32_t>(words.size());
  for (const Hash128& key : page_keys) {
    const auto page = pages_.find(key);
    if (page == pages_.end()) break;
    entry.pages.push_back(&page->second);
  }
  const auto rest = words.subspan(entry.pages.size() * page_tokens_);
  entry.tail.assign(rest.begin(), rest.end());
  const CatalogEntry* parent = longest_prefix(entry);
  return snapshot_value({.kind = kind,
                         .seconds_lost = cost_seconds - (parent != nullptr ? parent->cost_seconds : 0),
                         .freed_bytes = own_bytes},
                        value_);
}

// --- reading

SnapshotInfo Catalog::info(const CatalogEntry& entry, Tier tier) const {
  const uint64_t page_bytes = entry.page_ends.empty() ? 0 : entry.page_ends.back();
  const uint64_t own = freed_bytes(entry);
  return {.id = entry.id,
          .name_space = entry.name_space,
          .position = entry.position,
          .kind = entry.kind,
          .cost_seconds = entry.cost_seconds,
          .parent = entry.parent != nullptr ? entry.parent->id : SnapshotId(),
          .history = entry.history,
          .created_ms = entry.created_ms,
          .last_used_ms = entry.last_used_ms,
          .own_bytes = own,
          .shared_bytes = entry.own_bytes + page_bytes - own,
          .in_ram = tier == Tier::kRam || entry.elsewhere,
          .on_disk = tier == Tier::kDisk || entry.elsewhere,
          .pinned = entry.pins > 0,
          .diverged = diverged(entry)};
}

std::vector<SnapshotInfo> Catalog::list(Tier tier) const {
  std::vector<SnapshotInfo> list;
  for (const auto& [id, entry] : entries_)
    if (!entry.hidden) list.push_back(info(entry, tier));
  std::sort(list.begin(), list.end(), [](const SnapshotInfo& a, const SnapshotInfo& b) {
    return std::tie(b.last_used_ms, a.id) < std::tie(a.last_used_ms, b.id);
  });
  return list;
}

std::vector<TokenWord> Catalog::words(const CatalogEntry& entry) const {
  std::vector<TokenWord> words;
  words.reserve(entry.position);
  for (const CatalogPage* page : entry.pages)
    words.insert(words.end(), page->words.begin(), page->words.end());
  words.insert(words.end(), entry.tail.begin(), entry.tail.end());
  return words;
}

Manifest Catalog::manifest(const CatalogEntry& entry, const StoreSeed& seed) const {
  Manifest manifest{.id = entry.id,
                    .name_space = entry.name_space,
                    .kind = entry.kind,
                    .cost_seconds = entry.cost_seconds,
                    .created_ms = entry.created_ms,
                    .last_used_ms = entry.last_used_ms,
                    .seed = seed,
                    .words = words(entry),
                    .part_checksums = entry.part_checksums,
                    .tail_bytes = entry.tail_bytes,
                    .tail_checksum = entry.tail_checksum};
  for (const CatalogPage* page : entry.pages) {
    manifest.page_keys.push_back(page->key);
    manifest.page_checksums.push_back(page->checksum);
  }
  return manifest;
}

uint64_t Catalog::metadata_of(const CatalogEntry& entry) const {
  return sizeof entry + std::span(entry.pages).size_bytes() + std::span(entry.page_ends).size_bytes() +
         std::span(entry.tail).size_bytes() + std::span(entry.part_checksums).size_bytes();
}

}  // namespace strata::snapshot
