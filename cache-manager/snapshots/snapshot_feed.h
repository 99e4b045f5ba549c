#pragma once
// What is stored in which tier, as those are told who want to know (Snapshots.Watch): everything at first,
// then every change in order. Belongs to the snapshot actor.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cache-manager/snapshots/snapshot_disk.h"
#include "services/snapshot/snapshot_store.h"

namespace strata::cache_manager {

// Forget everything; what follows is all there is.
struct FeedBegin {
  uint64_t instance_id = 0;              // of the store; 0: there is none yet
  std::vector<std::byte> identity = {};  // snapshot::serialize(); empty: there is none yet
};
// New, or its tiers have changed (no tokens then).
struct FeedAdded {
  snapshot::SnapshotInfo info;
  // The tokens are those of `base` up to base_tokens and then these; zero: these are all.
  snapshot::SnapshotId base = {};
  uint32_t base_tokens = 0;
  std::vector<int32_t> tokens = {};
  std::vector<snapshot::TokenRange> generated = {};  // of all tokens
};
struct FeedRemoved {  // from both tiers
  snapshot::SnapshotId id;
  std::string cause;
};
struct FeedComplete {};  // the list after FeedBegin
using FeedEvent = std::variant<FeedBegin, FeedAdded, FeedRemoved, FeedComplete>;

class SnapshotFeed {
 public:
  // False: does not want any more.
  using Watcher = std::function<bool(const FeedEvent&)>;

  // The store has changed to another one, or there is one now: all are told everything anew. Both must
  // outlive their use here: until the next begin() or end(). disk null: no disk tier. The tier itself is
  // asked only for tokens of what is on disk alone and for why something is gone: both wait for nothing but
  // its lock.
  void begin(uint64_t instance_id, snapshot::SnapshotStore& ram, SnapshotDisk* disk);
  void end();  // there is no store any more; nobody is told
  void add(Watcher watcher);

  // After every change of a tier, whatever it was. The store learns what else is on disk
  // (SnapshotStore::set_elsewhere).
  void ram_stored(const snapshot::SnapshotId& id);
  void ram_removed();  // looks for what is gone
  void ram_found();    // what is there again: dropped while somebody read it, then wanted anew
  void disk_changed(const DiskPicture& picture);  // one that is older than the last is left aside

  bool on_disk(const snapshot::SnapshotId& id) const;
  uint32_t count(snapshot::Tier tier) const;
  // As both tiers together say it; nullopt: in neither.
  std::optional<snapshot::SnapshotInfo> info(const snapshot::SnapshotId& id) const;
  std::vector<snapshot::SnapshotInfo> list() const;  // the last used first
  // kNotFound: says why it is gone, if that is known.
  struct Tokens {
    std::vector<int32_t> tokens;
    std::vector<snapshot::TokenRange> generated;
  };
  Result<Tokens> tokens(const snapshot::SnapshotId& id) const;

 private:
  struct Places {
    bool ram = false;
    std::optional<snapshot::SnapshotInfo> disk = {};
  };
  using Known = std::unordered_map<snapshot::SnapshotId, Places, snapshot::Hash128Hasher>;

  void tell(const FeedEvent& event);
  // missing: what is gone from the disk already, though no picture has shown it yet; it was left out.
  bool tell_everything(const Watcher& watcher, std::vector<snapshot::SnapshotId>& missing) const;
  // With its tokens, those of its parent left out if `may_be_base` says so.
  std::optional<FeedAdded> with_tokens(
      const snapshot::SnapshotId& id,
      const std::function<bool(const snapshot::SnapshotId&)>& may_be_base) const;
  void tell_new(const snapshot::SnapshotId& id);
  void tell_places(const snapshot::SnapshotId& id);
  void forget(Known::iterator place);

  uint64_t instance_id_ = 0;
  snapshot::SnapshotStore* ram_ = nullptr;
  const snapshot::DiskTier* disk_ = nullptr;
  uint64_t last_picture_ = 0;
  Known known_;
  std::vector<Watcher> watchers_;
};

}  // namespace strata::cache_manager
