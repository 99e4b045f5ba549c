#include "gpu-worker/resident_table.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::gpu_worker {

using shm::SlotEntry;
using shm::SlotState;

ResidentTable::ResidentTable(ResidentTableOptions options)
    : table_(std::move(options.table)),
      slots_(options.slots),
      slot_bytes_(options.slot_bytes),
      experts_per_layer_(std::move(options.experts_per_layer)),
      checksum_(std::move(options.checksum)),
      entries_(table_.header().slots),
      changes_(kChangesKept) {
  for (uint32_t count : experts_per_layer_) experts_max_ = std::max(experts_max_, count);
  if (checksum_) landed_checksums_.resize(entries_.size());
  places_.assign(experts_per_layer_.size() * experts_max_, kNowhere);
}

uint64_t ResidentTable::begin_attachment() {
  drop_reserved();
  attachment_ = ++attachments_;
  return attachment_;
}

void ResidentTable::end_attachment(uint64_t epoch) {
  if (epoch != attachment_) return;
  drop_reserved();
  attachment_ = 0;
}

Result<std::vector<bool>> ResidentTable::retire(uint64_t epoch, std::span<const ExpertExchange> exchanges) {
  TRY_OK(check_attachment(epoch));
  for (const ExpertExchange& exchange : exchanges) {
    if (exchange.slot >= entries_.size()) {
      return fail(Code::kOutOfRange, "retire: slot {} of {}", exchange.slot, entries_.size());
    }
    if (exchange.layer >= experts_per_layer_.size() ||
        exchange.expert >= experts_per_layer_[exchange.layer]) {
      return fail(Code::kOutOfRange, "retire: there is no expert {} in layer {}", exchange.expert,
                  exchange.layer);
    }
  }
  std::vector<bool> accepted;
  bool changed = false;
  for (const ExpertExchange& exchange : exchanges) {
    SlotEntry victim = entries_[exchange.slot];
    bool possible =
        victim.state != SlotState::kReserved && place(exchange.layer, exchange.expert) == kNowhere;
    accepted.push_back(possible);
    if (!possible) continue;
    changed = true;
    if (victim.state == SlotState::kResident) place(victim.layer, victim.expert) = kNowhere;
    place(exchange.layer, exchange.expert) = exchange.slot;
    set(exchange.slot, {SlotState::kReserved, static_cast<uint16_t>(exchange.layer),
                        static_cast<uint16_t>(exchange.expert)});
  }
  if (changed) publish();
  return accepted;
}

Result<uint64_t> ResidentTable::land(uint64_t epoch, std::span<const uint32_t> slots,
                                     std::span<const uint64_t> checksums) {
  TRY_OK(check_attachment(epoch));
  TRY_OK(check_reserved(slots));
  TRY_OK(check_records(slots, checksums));
  for (uint32_t slot : slots) set(slot, {SlotState::kResident, entries_[slot].layer, entries_[slot].expert});
  publish();
  return residency_epoch();
}

Status ResidentTable::abandon(uint64_t epoch, std::span<const uint32_t> slots) {
  TRY_OK(check_attachment(epoch));
  TRY_OK(check_reserved(slots));
  for (uint32_t slot : slots) {
    if (entries_[slot].state != SlotState::kReserved) continue;  // named twice
    place(entries_[slot].layer, entries_[slot].expert) = kNowhere;
    set(slot, {});
  }
  publish();
  return {};
}

std::optional<uint32_t> ResidentTable::resident_slot(uint32_t layer, uint32_t expert) const {
  CHECK(layer < experts_per_layer_.size() && expert < experts_max_, "layer {} expert {}", layer, expert);
  uint32_t slot = places_[std::size_t{layer} * experts_max_ + expert];
  if (slot == kNowhere || entries_[slot].state != SlotState::kResident) return std::nullopt;
  return slot;
}

const std::byte* ResidentTable::record(uint32_t layer, uint32_t expert) const {
  const auto slot = resident_slot(layer, expert);
  if (!slot) return nullptr;
  if (checksum_) {
    const uint64_t found = checksum_in(*slot);
    CHECK(found == landed_checksums_[*slot],
          "slot {} was written after layer {} expert {} had landed in it: checksum {:016x}, then {:016x}",
          *slot, layer, expert, found, landed_checksums_[*slot]);
  }
  return record_in(*slot);
}

Status ResidentTable::check_attachment(uint64_t epoch) const {
  if (attachment_ != 0 && epoch == attachment_) return {};
  return fail(Code::kAborted, "attachment {} has ended; the present one is {}", epoch, attachment_);
}

Status ResidentTable::check_reserved(std::span<const uint32_t> slots) const {
  for (uint32_t slot : slots) {
    if (slot >= entries_.size()) return fail(Code::kOutOfRange, "slot {} of {}", slot, entries_.size());
    if (entries_[slot].state != SlotState::kReserved)
      return fail(Code::kFailedPrecondition, "slot {} is not reserved", slot);
  }
  return {};
}

Status ResidentTable::check_records(std::span<const uint32_t> slots, std::span<const uint64_t> checksums) {
  if (!checksums.empty() && checksums.size() != slots.size()) {
    return fail(Code::kInvalidArgument, "land: {} checksums for {} slots", checksums.size(), slots.size());
  }
  if (!checksum_) return {};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const uint64_t found = checksum_in(slots[i]);
    if (!checksums.empty() && found != checksums[i]) {
      return fail(Code::kDataLoss,
                  "land: slot {} does not hold layer {} expert {} as it was copied: checksum {:016x}, "
                  "expected {:016x}",
                  slots[i], entries_[slots[i]].layer, entries_[slots[i]].expert, found, checksums[i]);
    }
    landed_checksums_[slots[i]] = found;
  }
  return {};
}

void ResidentTable::set(uint32_t slot, SlotEntry entry) {
  for (const SlotEntry& each : {entries_[slot], entry}) {
    if (each.state == SlotState::kResident)
      changes_[change_count_++ % kChangesKept] = {each.layer, each.expert};
  }
  entries_[slot] = entry;
  table_.set_slot(slot, entry);
}

void ResidentTable::drop_reserved() {
  bool changed = false;
  for (uint32_t slot = 0; slot < entries_.size(); ++slot) {
    if (entries_[slot].state != SlotState::kReserved) continue;
    place(entries_[slot].layer, entries_[slot].expert) = kNowhere;
    set(slot, {});
    changed = true;
  }
  if (changed) publish();
}

void ResidentTable::publish() {
  auto resident = [](const SlotEntry& entry) { return entry.state == SlotState::kResident; };
  used_.store(static_cast<uint32_t>(std::count_if(entries_.begin(), entries_.end(), resident)),
              std::memory_order_relaxed);
  table_.header().epoch.fetch_add(1, std::memory_order_release);
}

}  // namespace strata::gpu_worker
