#pragma once
// The RAM tier: snapshots in a pool of shared memory. The store's owner (one thread, an actor) keeps the
// books; whoever holds the device copies bytes into and out of the extents that the store names.
//
//   storing   reserve() -> copy into every extent of the reservation -> commit() with the checksums, or
//   abandon() reading   open()    -> copy out, checking the checksums           -> release()
//
// Only pages that no other snapshot has are copied: a second snapshot of a growing conversation costs its new
// pages and the fixed part. Room is made by removing what is worth least (catalog.h, value.h); never what is
// open or being written. Every removal is remembered with its cause for a while.
//
// Clock and randomness come from outside, so that the same calls always give the same store.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "services/base/status.h"
#include "services/snapshot/catalog.h"
#include "services/snapshot/content.h"
#include "services/snapshot/eviction_log.h"
#include "services/snapshot/keys.h"
#include "services/snapshot/ram_pool.h"
#include "services/snapshot/types.h"

namespace strata::snapshot {

struct StoreOptions {
  StateIdentity identity;
  StoreSeed seed{};
  ValueOptions value;
  EvictionLogOptions evictions;
  uint32_t per_history_max = 0;     // snapshots of one conversation; 0: the budget alone decides
  std::function<int64_t()> now_ms;  // Unix time; decides order and age, so it should not jump
};

// A state that somebody wants to keep.
struct StoreRequest {
  Hash128 identity;    // digest() of the writer's; another than the store's is refused
  Hash128 name_space;  // not zero
  std::span<const int32_t> tokens;
  std::span<const TokenRange> generated;  // of the tokens, ascending (keys.h)
  SnapshotKind kind = SnapshotKind::kTurn;
  double cost_seconds = 0;  // what reading all tokens anew would take; finite, 0 or more
  uint64_t tail_bytes =
      0;  // content of the partly filled page: 1 to page_bytes, 0 where the tokens end with a page
  uint64_t owner = 0;  // the caller's mark, for release_owner()
};

using Ticket = uint64_t;  // never 0, never used twice

struct PageToCopy {
  uint32_t page_index = 0;  // tokens [page_index * P, page_index * P + tokens)
  uint32_t tokens = 0;      // P, fewer in the tail page
  Extent extent;
};

struct Reservation {
  Ticket ticket = 0;
  SnapshotId id;
  Extent fixed;
  std::vector<PageToCopy> pages;  // ascending; the first pages may be here already, the tail page never is
  uint32_t shared_pages = 0;      // full pages that need no copying
};

// What the copier says about the bytes it wrote.
struct CopyChecksums {
  std::vector<uint64_t> parts;  // of identity.parts, in their order
  std::vector<uint64_t> pages;  // of Reservation::pages, in their order
};

struct StoredPage {
  uint32_t page_index = 0;
  uint32_t tokens = 0;
  Extent extent;
  uint64_t checksum = 0;
};

struct OpenSnapshot {
  Ticket ticket = 0;
  SnapshotId id;
  uint32_t position = 0;
  Extent fixed;
  std::vector<uint64_t> part_checksums;
  std::vector<StoredPage> pages = {};  // all of them, the tail page last
};

struct StoreCounters {
  uint64_t stored = 0;        // snapshots committed
  uint64_t already_here = 0;  // reserve() of a state that is stored
  uint64_t pages_copied = 0;
  uint64_t pages_shared = 0;
  uint64_t opened = 0;
  uint64_t refused_identity = 0;  // of another model, format, setting
  uint64_t refused_large = 0;     // more than the whole budget
  uint64_t refused_full = 0;      // what could be freed would not do, or shared memory is full
  uint64_t refused_value = 0;     // an interval checkpoint worth less than what it would push out
  std::array<uint64_t, kEvictionCauses> evicted{};
};

class SnapshotStore {
 public:
  // kInvalidArgument: the identity.
  static Result<SnapshotStore> create(StoreOptions options, RamPool pool);

  // Errors: kFailedPrecondition (another identity), kInvalidArgument (names the field), kAlreadyExists (this
  // state is stored; it counts as used now), kOutOfRange (larger than the whole budget), kResourceExhausted
  // (what could be freed would not do: nothing was removed then; or an interval checkpoint worth less than
  // what is here).
  Result<Reservation> reserve(const StoreRequest& request);
  // The snapshot can be opened from now on. kNotFound: no such reservation (its owner was released);
  // kInvalidArgument: as many checksums as parts and pages are needed; the reservation stays.
  Result<SnapshotInfo> commit(Ticket reservation, const CopyChecksums& checksums);
  // Gives the memory back. Nobody may be writing any more. kNotFound.
  Status abandon(Ticket reservation);

  // Its extents stay as they are until release(). Counts as a use. kNotFound: says why it is gone, if that is
  // known.
  Result<OpenSnapshot> open(const SnapshotId& id, uint64_t owner);
  Status release(Ticket open);  // kNotFound
  // A reader or writer is gone for good (its process is dead): abandons and releases whatever is its.
  void release_owner(uint64_t owner);

  // Reads all bytes of an open snapshot and compares the checksums. kDataLoss names the part or page;
  // kNotFound.
  Status verify(const OpenSnapshot& snapshot) const;
  // Removes a snapshot, or as soon as nobody has it open any more. kNotFound.
  Status drop(const SnapshotId& id, EvictionCause cause = EvictionCause::kDropped);
  Status touch(const SnapshotId& id);  // counts as a use; kNotFound
  // Another tier has it, or has it no more; decides what it is worth here. kNotFound.
  Status set_elsewhere(const SnapshotId& id, bool elsewhere);
  // Removes snapshots until free memory is at its floor again; returns how many bytes. Call it now and then.
  uint64_t relieve_memory();

  bool contains(const SnapshotId& id) const { return visible(id) != nullptr; }
  std::optional<SnapshotInfo> info(const SnapshotId& id) const;
  std::vector<SnapshotInfo> list() const { return catalog_->list(Tier::kRam); }
  Result<std::vector<int32_t>> tokens(const SnapshotId& id) const;
  Result<std::vector<TokenRange>> generated(const SnapshotId& id) const;
  std::optional<Eviction> why_gone(const SnapshotId& id) const;
  // An open snapshot with its bytes where they lie in the pool: valid until release(). kNotFound.
  Result<SnapshotContent> content(const OpenSnapshot& snapshot) const;

  const StateIdentity& identity() const { return options_.identity; }
  const Hash128& identity_digest() const { return identity_digest_; }
  // Id and page keys that tokens have here; kInvalidArgument as pack_tokens().
  Result<StateKeys> keys_of(const Hash128& name_space, std::span<const int32_t> tokens,
                            std::span<const TokenRange> generated) const;
  const RamPool& pool() const { return pool_; }
  const StoreCounters& counters() const { return counters_; }
  std::size_t page_count() const { return catalog_->page_count(); }
  uint64_t metadata_bytes() const { return catalog_->metadata_bytes(); }
  // Compares the books with each other; a difference is a bug. For tests.
  void check_books() const;

 private:
  struct Pending {
    Reservation reservation;
    EntryToInsert entry;        // pages: keys of all
    std::vector<Hash128> held;  // the shared ones
    uint64_t owner = 0;
  };
  struct Opened {
    SnapshotId id;
    uint64_t owner = 0;
  };
  struct Extents {  // of one snapshot
    Extent fixed;
    Extent tail = {};  // bytes 0: none
  };

  SnapshotStore(StoreOptions options, RamPool pool);

  Status check_request(const StoreRequest& request) const;
  Status make_room(uint64_t needed, uint64_t held_bytes, const EntryToInsert& entry,
                   std::span<const Hash128> keys);
  void evict(const SnapshotId& id, EvictionCause cause);
  void give_back_pages(std::span<const Hash128> keys);
  void limit_history(const Hash128& history);
  const CatalogEntry* visible(const SnapshotId& id) const;
  Failure gone(const SnapshotId& id) const;

  StoreOptions options_;
  Hash128 identity_digest_;
  KeyMaker keys_;
  RamPool pool_;
  std::unique_ptr<Catalog> catalog_;  // its entries point to each other
  EvictionLog evictions_;
  std::unordered_map<Hash128, Extent, Hash128Hasher> page_extents_;
  std::unordered_map<SnapshotId, Extents, Hash128Hasher> extents_;
  std::map<Ticket, Pending> pending_;
  std::map<Ticket, Opened> opened_;
  Ticket next_ticket_ = 1;
  StoreCounters counters_;
};

}  // namespace strata::snapshot
