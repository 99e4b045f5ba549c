#pragma once
// Which expert sits in which arena slot, and the rules by which that changes (design: "Residency"). The
// window loop's thread owns it: every function is called at a window boundary, so within a window the answers
// of record() stand still.
//
//   Empty ----retire----> Reserved ----land----> Resident ----retire----> Reserved
//     ^--------abandon, end of the attachment-------'
//
// The four steps of an exchange: the cache manager asks to reserve (1), retire() takes the victim out (2),
// the cache manager copies (3), land() publishes (4). An attachment of a cache manager is named by its epoch;
// what an ended attachment had reserved becomes empty, and its late calls get kAborted.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gpu-worker/resident_experts.h"
#include "services/base/status.h"
#include "services/shm/residency_table.h"

namespace strata::gpu_worker {

struct ExpertExchange {
  uint32_t slot = 0;
  uint32_t layer = 0;  // of the incoming expert
  uint32_t expert = 0;
};

// Of the record at `record`; model::record_checksum on the host device.
using RecordChecksum = std::function<uint64_t(uint32_t layer, uint32_t expert, const std::byte* record)>;

struct ResidentTableOptions {
  shm::ResidencyTable table;   // what others see of it
  std::byte* slots = nullptr;  // slot i begins at i * slot_bytes
  uint64_t slot_bytes = 0;
  std::vector<uint32_t> experts_per_layer;
  // Checks records when they land and before each use (experts.verify_records): that no slot is read before
  // its bytes are there, nor written afterwards. None: they are not checked.
  RecordChecksum checksum = {};
};

class ResidentTable final : public ResidentExperts {
 public:
  explicit ResidentTable(ResidentTableOptions options);

  // A new attachment; ends the one before. Returns its epoch (never 0).
  uint64_t begin_attachment();
  // Nothing happens when another attachment has begun meanwhile.
  void end_attachment(uint64_t epoch);

  // One answer per exchange. Refused: the slot is in an exchange, or the expert is resident or on its way
  // into another slot. kOutOfRange (then nothing was changed): no such slot or expert. kAborted: the
  // attachment has ended.
  Result<std::vector<bool>> retire(uint64_t epoch, std::span<const ExpertExchange> exchanges);
  // Publishes reserved slots; the residency epoch afterwards. kFailedPrecondition (nothing changed): a slot
  // is not reserved. `checksums`: of what was copied, one per slot, or none. kInvalidArgument: some, but not
  // one per slot. kDataLoss: records are checked, and a slot holds something else.
  Result<uint64_t> land(uint64_t epoch, std::span<const uint32_t> slots,
                        std::span<const uint64_t> checksums = {});
  // Gives reserved slots up: they become empty. kFailedPrecondition (nothing changed): a slot is not
  // reserved.
  Status abandon(uint64_t epoch, std::span<const uint32_t> slots);

  const std::byte* record(uint32_t layer, uint32_t expert) const override;
  std::optional<uint32_t> resident_slot(uint32_t layer, uint32_t expert) const;

  // Which experts came or went, for a device that keeps a copy of the answers: with exchanges at every
  // window, making such a copy anew each time would cost the window more than the exchanges do. `seen`: how
  // many changes the caller knows. False, and nothing is visited: more than kChangesKept are new to it.
  static constexpr uint32_t kChangesKept = 4096;
  uint64_t change_count() const { return change_count_; }
  template <class Visit>  // visit(layer, expert)
  bool visit_changes(uint64_t seen, Visit visit) const {
    if (change_count_ - seen > kChangesKept) return false;
    for (uint64_t change = seen; change < change_count_; ++change) {
      const ExpertAt& at = changes_[change % kChangesKept];
      visit(at.layer, at.expert);
    }
    return true;
  }

  // Any thread.
  uint32_t slot_count() const { return static_cast<uint32_t>(entries_.size()); }
  std::byte* slots() const { return slots_; }
  uint32_t slots_used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t residency_epoch() const { return table_.header().epoch.load(std::memory_order_relaxed); }
  const shm::Segment& segment() const { return table_.segment(); }

 private:
  struct ExpertAt {
    uint32_t layer = 0;
    uint32_t expert = 0;
  };
  static constexpr uint32_t kNowhere = UINT32_MAX;

  Status check_attachment(uint64_t epoch) const;
  Status check_reserved(std::span<const uint32_t> slots) const;
  Status check_records(std::span<const uint32_t> slots, std::span<const uint64_t> checksums);
  const std::byte* record_in(uint32_t slot) const { return slots_ + uint64_t{slot} * slot_bytes_; }
  uint64_t checksum_in(uint32_t slot) const {
    return checksum_(entries_[slot].layer, entries_[slot].expert, record_in(slot));
  }
  // The slot that holds the expert or waits for it.
  uint32_t& place(uint32_t layer, uint32_t expert) {
    return places_[std::size_t{layer} * experts_max_ + expert];
  }
  void set(uint32_t slot, shm::SlotEntry entry);
  void drop_reserved();
  void publish();

  shm::ResidencyTable table_;
  std::byte* slots_;
  uint64_t slot_bytes_;
  std::vector<uint32_t> experts_per_layer_;
  RecordChecksum checksum_;
  std::vector<uint64_t> landed_checksums_;  // (slots) of what landed there; empty: not checked
  uint32_t experts_max_ = 0;
  // The truth is here; the shared table only shows it, so that nobody outside can change what a window
  // computes with.
  std::vector<shm::SlotEntry> entries_;  // (slots)
  std::vector<uint32_t> places_;         // (layers, experts_max)
  std::vector<ExpertAt> changes_;        // a ring, the next one at change_count_ % kChangesKept
  uint64_t change_count_ = 0;
  uint64_t attachments_ = 0;
  uint64_t attachment_ = 0;  // the present one's epoch; 0: none
  std::atomic<uint32_t> used_{0};
};

}  // namespace strata::gpu_worker
