#pragma once
// The expert arena as a shared-memory segment (host device): SegmentHeader, then slots of one size. A slot
// holds one expert's record (model::LayerExperts::write_record). The gpu-worker creates it and reads
// published slots; the cache manager writes reserved ones.

#include <cstdint>

#include "services/shm/segment.h"

namespace strata::shm {

inline constexpr uint32_t kArenaLayoutVersion = 1;
inline constexpr uint64_t kArenaSlotsOffset =
    4096;  // a page, so that the first slot can be registered for DMA

// Slot size for records of up to `record_bytes`: whole cache lines.
constexpr uint64_t arena_slot_bytes(uint64_t record_bytes) {
  return (record_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}
constexpr uint64_t arena_bytes(uint64_t slots, uint64_t slot_bytes) {
  return kArenaSlotsOffset + slots * slot_bytes;
}
inline std::byte* arena_slots(const Segment& arena) { return arena.data() + kArenaSlotsOffset; }

}  // namespace strata::shm
