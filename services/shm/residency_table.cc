#include "services/shm/residency_table.h"

#include <new>

#include "services/base/check.h"

namespace strata::shm {
namespace {

using PackedEntry = std::atomic<uint64_t>;
constexpr uint64_t kEntriesOffset = sizeof(SegmentHeader) + sizeof(ResidencyHeader);

PackedEntry& entry_at(const Segment& segment, uint32_t index) {
  return reinterpret_cast<PackedEntry*>(segment.data() + kEntriesOffset)[index];
}

}  // namespace

uint64_t ResidencyTable::bytes_needed(uint32_t slots) {
  return kEntriesOffset + uint64_t{slots} * sizeof(PackedEntry);
}

Result<ResidencyTable> ResidencyTable::create(const std::string& name, uint32_t slots, uint32_t layers,
                                              uint64_t slot_bytes) {
  if (layers == 0 || layers > kLayersMax || slots > kLayersMax * kExpertsMax) {
    return fail(Code::kInvalidArgument,
                "residency table: {} slots for {} layers, must be at most {} for 1 to {}", slots, layers,
                kLayersMax * kExpertsMax, kLayersMax);
  }
  ResidencyTable table;
  TRY(table.segment_,
      Segment::create(name, SegmentKind::kResidencyTable, kResidencyLayoutVersion, bytes_needed(slots)));
  new (table.segment_.data() + sizeof(SegmentHeader))
      ResidencyHeader{.slots = slots, .layers = layers, .slot_bytes = slot_bytes};
  for (uint32_t slot = 0; slot < slots; ++slot)
    new (&entry_at(table.segment_, slot)) PackedEntry(SlotEntry().packed());
  return table;
}

Result<ResidencyTable> ResidencyTable::attach(const std::string& name, uint64_t bytes, uint64_t instance_id) {
  if (bytes < kEntriesOffset)
    return fail(Code::kFailedPrecondition, "residency table {}: {} bytes is too small", name, bytes);
  ResidencyTable table;
  TRY(table.segment_,
      Segment::attach(name, SegmentKind::kResidencyTable, kResidencyLayoutVersion, bytes, instance_id));
  const ResidencyHeader& header = table.header();
  if (header.layers == 0 || header.layers > kLayersMax || bytes_needed(header.slots) != bytes) {
    return fail(Code::kFailedPrecondition, "residency table {}: {} slots for {} layers do not fit {} bytes",
                name, header.slots, header.layers, bytes);
  }
  return table;
}

ResidencyHeader& ResidencyTable::header() const {
  return *std::launder(reinterpret_cast<ResidencyHeader*>(segment_.data() + sizeof(SegmentHeader)));
}

SlotEntry ResidencyTable::slot(uint32_t index) const {
  CHECK(index < header().slots, "slot {} of {}", index, header().slots);
  // Acquire: whoever sees a slot reserved also sees that no window uses its old bytes any more, and may
  // overwrite them.
  return SlotEntry::unpack(entry_at(segment_, index).load(std::memory_order_acquire));
}

void ResidencyTable::set_slot(uint32_t index, SlotEntry entry) const {
  CHECK(index < header().slots, "slot {} of {}", index, header().slots);
  // Release: all reads of the slot's old bytes by finished windows come before the new state is seen.
  entry_at(segment_, index).store(entry.packed(), std::memory_order_release);
}

}  // namespace strata::shm
