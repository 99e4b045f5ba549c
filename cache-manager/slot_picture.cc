#include "cache-manager/slot_picture.h"

#include <algorithm>

namespace strata::cache_manager {

using residency::SlotView;

void SlotPicture::set(uint32_t slot, SlotView view) {
  SlotView& present = slots_.at(slot);
  if (present.state == SlotView::State::kResident) {
    --resident_.at(present.key.layer);
    --used_;
  }
  if (view.state == SlotView::State::kResident) {
    ++resident_.at(view.key.layer);
    ++used_;
  }
  present = view;
}

std::vector<std::vector<uint32_t>> SlotPicture::experts() const {
  std::vector<std::vector<uint32_t>> of_layers(resident_.size());
  for (const SlotView& slot : slots_) {
    if (slot.state == SlotView::State::kResident) of_layers[slot.key.layer].push_back(slot.key.expert);
  }
  for (auto& experts : of_layers) std::ranges::sort(experts);
  return of_layers;
}

}  // namespace strata::cache_manager
