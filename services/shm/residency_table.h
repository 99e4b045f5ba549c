#pragma once
// The residency table in shared memory: which expert sits in which arena slot. Written by the gpu-worker's
// window loop at window boundaries only; the cache manager (and `strata status`) read it.

#include <atomic>
#include <cstdint>

#include "services/base/status.h"
#include "services/shm/segment.h"

namespace strata::shm {

inline constexpr uint32_t kResidencyLayoutVersion = 1;

enum class SlotState : uint8_t {
  kEmpty = 0,
  kResident = 1,  // published: windows use it
  kReserved = 2,  // retired and promised to (layer, expert): the cache manager may write its bytes
};

struct SlotEntry {
  SlotState state = SlotState::kEmpty;
  uint16_t layer = 0;
  uint16_t expert = 0;

  uint64_t packed() const {
    return uint64_t{static_cast<uint8_t>(state)} << 32 | uint64_t{layer} << 16 | expert;
  }
  static SlotEntry unpack(uint64_t value) {
    return {static_cast<SlotState>(value >> 32), static_cast<uint16_t>(value >> 16),
            static_cast<uint16_t>(value)};
  }
};

struct alignas(kCacheLine) ResidencyHeader {
  uint32_t slots = 0;
  uint32_t layers = 0;
  uint64_t slot_bytes = 0;
  std::atomic<uint64_t> epoch{0};  // grows with every published change
};

class ResidencyTable {
 public:
  static Result<ResidencyTable> create(const std::string& name, uint32_t slots, uint32_t layers,
                                       uint64_t slot_bytes);
  static Result<ResidencyTable> attach(const std::string& name, uint64_t bytes, uint64_t instance_id);

  static uint64_t bytes_needed(uint32_t slots);  // of the segment

  ResidencyHeader& header() const;
  SlotEntry slot(uint32_t index) const;                  // acquire
  void set_slot(uint32_t index, SlotEntry entry) const;  // release; window loop only
  const Segment& segment() const { return segment_; }

 private:
  Segment segment_;
};

}  // namespace strata::shm
