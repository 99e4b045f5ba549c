#pragma once
// The slots as the policy sees them, and how many each layer has.

#include <cstdint>
#include <span>
#include <vector>

#include "services/residency/policy.h"

namespace strata::cache_manager {

class SlotPicture {
 public:
  SlotPicture() = default;
  SlotPicture(uint32_t slots, uint32_t layers) : slots_(slots), resident_(layers) {}

  void set(uint32_t slot, residency::SlotView view);
  const residency::SlotView& at(uint32_t slot) const { return slots_.at(slot); }
  std::span<const residency::SlotView> slots() const { return slots_; }
  std::span<const uint32_t> resident() const { return resident_; }  // (layers)
  uint32_t used() const { return used_; }                           // slots with a resident expert
  std::vector<std::vector<uint32_t>> experts() const;               // per layer, resident, ascending

 private:
  std::vector<residency::SlotView> slots_;
  std::vector<uint32_t> resident_;
  uint32_t used_ = 0;
};

}  // namespace strata::cache_manager
