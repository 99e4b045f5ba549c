#pragma once
// Which snapshots a tier holds, which pages they share, how they continue each other, and which of them is
// worth least. Pure bookkeeping without bytes, clock or randomness, the same for RAM and disk; one thread.
//
// Snapshots of a namespace form a forest: the parent of a snapshot is the longest other one that is a prefix
// of it (same tokens, same origins). Removing one hands its children to its parent.
//
// A history is one conversation: a snapshot belongs to its parent's history, unless the parent is a root,
// where many conversations begin; then it begins one of its own. A history's latest is the snapshot created
// last. A snapshot that is neither a prefix of the latest nor continues it has diverged (an edited message, a
// compaction) if nobody used it since the latest was created; it will hardly be asked for again and is the
// first to go.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "services/snapshot/content.h"
#include "services/snapshot/keys.h"
#include "services/snapshot/types.h"
#include "services/snapshot/value.h"

namespace strata::snapshot {

// Whether two snapshots hold a page. Shared: addresses stay the same as long as somebody refers to it.
struct CatalogPage {
  Hash128 key;
  uint64_t bytes = 0;     // what it takes in this tier
  uint64_t checksum = 0;  // of its content
  std::vector<TokenWord> words;
  uint32_t references = 0;  // snapshots and holds
  uint32_t pins = 0;        // pinned snapshots and holds among them
};

struct CatalogEntry {
  SnapshotId id;
  Hash128 name_space;
  Hash128 history;
  uint32_t position = 0;
  SnapshotKind kind = SnapshotKind::kTurn;
  double cost_seconds = 0;
  int64_t created_ms = 0;
  int64_t last_used_ms = 0;
  std::vector<uint64_t> part_checksums;
  uint64_t tail_bytes = 0;  // content of the tail page; 0: the snapshot ends with a page
  uint64_t tail_checksum = 0;
  uint64_t own_bytes = 0;  // what it takes in this tier besides its pages
  std::vector<CatalogPage*> pages;
  std::vector<uint64_t> page_ends;  // sum of the pages' bytes up to each, for freed_bytes()
  std::vector<TokenWord> tail;
  CatalogEntry* parent = nullptr;
  std::vector<CatalogEntry*> children;
  uint32_t pins = 0;
  bool hidden = false;     // dropped while pinned: gone for everybody but who has it open
  bool elsewhere = false;  // the other tier has it, too
};

struct PageToInsert {
  Hash128 key;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
};

struct EntryToInsert {
  SnapshotId id;
  Hash128 name_space;
  SnapshotKind kind = SnapshotKind::kTurn;
  double cost_seconds = 0;
  int64_t created_ms = 0;
  int64_t last_used_ms = 0;
  std::vector<TokenWord> words = {};     // all of them
  std::vector<PageToInsert> pages = {};  // words.size() / page_tokens; what is said of known ones is ignored
  std::vector<uint64_t> part_checksums = {};
  uint64_t tail_bytes = 0;
  uint64_t tail_checksum = 0;
  uint64_t own_bytes = 0;
};

// What stands in a manifest; the bytes of pages are 0.
EntryToInsert entry_to_insert(const Manifest& manifest, uint64_t own_bytes);

class Catalog {
 public:
  Catalog(uint32_t page_tokens, const ValueOptions& value);
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // The id must be new.
  CatalogEntry& insert(EntryToInsert insertion);
  // Must not be pinned. Returns the keys of pages that nobody refers to any more; they are forgotten here.
  std::vector<Hash128> remove(const SnapshotId& id);
  CatalogEntry* find(const SnapshotId& id);  // nullptr: not here; hidden ones are found
  const CatalogEntry* find(const SnapshotId& id) const;
  const CatalogPage* find_page(const Hash128& key) const;

  // A pinned snapshot is not offered for eviction, and its pages count as pinned.
  void pin(CatalogEntry& entry);
  void unpin(CatalogEntry& entry);
  // Keeps pages for somebody who will insert a snapshot that refers to them: they are not freed and count as
  // pinned.
  void hold_pages(std::span<const Hash128> keys);
  std::vector<Hash128> let_go_pages(
      std::span<const Hash128> keys);  // returns those that nobody refers to any more

  // The unpinned snapshot to remove first: diverged before others, then by value (value.h), then the longest
  // unused.
  struct Victim {
    SnapshotId id;
    bool diverged = false;
    double value = 0;
    uint64_t freed_bytes = 0;
  };
  std::optional<Victim> victim(int64_t now_ms) const;
  std::optional<Victim> victim_of_history(const Hash128& history, int64_t now_ms) const;
  uint32_t history_size(const Hash128& history) const;
  // What a snapshot with these properties would be worth as the newest leaf.
  double value_of_new(SnapshotKind kind, double cost_seconds, uint64_t own_bytes,
                      std::span<const Hash128> page_keys, std::span<const TokenWord> words,
                      const Hash128& name_space);

  SnapshotInfo info(const CatalogEntry& entry, Tier tier) const;
  std::vector<SnapshotInfo> list(Tier tier) const;  // without hidden ones; the last used first
  std::vector<TokenWord> words(const CatalogEntry& entry) const;
  Manifest manifest(const CatalogEntry& entry, const StoreSeed& seed) const;
  uint64_t freed_bytes(const CatalogEntry& entry) const;  // by removing it
  bool diverged(const CatalogEntry& entry) const;
  uint64_t bytes() const { return bytes_; }                // of all snapshots and pages
  uint64_t pinned_bytes() const { return pinned_bytes_; }  // of those that cannot be freed now
  std::size_t page_count() const { return pages_.size(); }
  const std::unordered_map<SnapshotId, CatalogEntry, Hash128Hasher>& entries() const { return entries_; }
  // Memory of the bookkeeping itself, estimated: token words, page lists, records.
  uint64_t metadata_bytes() const { return metadata_bytes_; }

 private:
  struct History {
    std::vector<CatalogEntry*> members;
    CatalogEntry* latest = nullptr;
  };

  bool is_prefix(const CatalogEntry& shorter, const CatalogEntry& longer) const;
  // The longest entry that is a proper prefix of tokens with these pages and this tail.
  CatalogEntry* longest_prefix(const CatalogEntry& of) const;
  std::vector<CatalogEntry*>& siblings_of(const CatalogEntry& entry);
  // Where entries are listed that end behind the same full page.
  static Hash128 end_key(const CatalogEntry& entry);
  void link(CatalogEntry& entry);
  void unlink(CatalogEntry& entry);
  void join_history(CatalogEntry& entry);
  void leave_history(CatalogEntry& entry);
  CatalogPage& refer(const PageToInsert& page, std::span<const TokenWord> words);
  bool release(CatalogPage& page);  // true: was the last reference
  void pin_page(CatalogPage& page);
  void unpin_page(CatalogPage& page);
  Victim judge(const CatalogEntry& entry, int64_t now_ms) const;
  static bool goes_before(const Victim& a, int64_t a_used_ms, const Victim& b, int64_t b_used_ms);
  template <class Entries>
  std::optional<Victim> least(const Entries& entries, int64_t now_ms) const;
  uint64_t metadata_of(const CatalogEntry& entry) const;

  uint32_t page_tokens_;
  ValueOptions value_;
  std::unordered_map<SnapshotId, CatalogEntry, Hash128Hasher> entries_;
  std::unordered_map<Hash128, CatalogPage, Hash128Hasher> pages_;
  std::unordered_map<Hash128, std::vector<CatalogEntry*>, Hash128Hasher> ends_;  // by end_key
  std::unordered_map<Hash128, std::vector<CatalogEntry*>, Hash128Hasher>
      heads_;  // without parent, by namespace
  std::unordered_map<Hash128, History, Hash128Hasher> histories_;
  uint64_t bytes_ = 0;
  uint64_t pinned_bytes_ = 0;
  uint64_t metadata_bytes_ = 0;
};

}  // namespace strata::snapshot
