#include "gpu-worker/cuda/expert_places.h"

#include <algorithm>
#include <utility>

namespace strata::gpu_worker::cuda {

ExpertPlaceTables::ExpertPlaceTables(std::vector<uint32_t> experts_per_layer)
    : experts_per_layer_(std::move(experts_per_layer)),
      experts_max_(std::ranges::max(experts_per_layer_)),
      with_boards_(experts_per_layer_.size() * experts_max_, kMissing),
      with_copies_(with_boards_),
      absent_(experts_per_layer_.size()) {
  for (auto& experts : absent_) experts.reserve(experts_max_);
}

bool ExpertPlaceTables::update(const ResidentTable& residents) {
  const uint64_t epoch = residents.residency_epoch();
  if (made_ && epoch == epoch_) return false;
  made_ = true;
  epoch_ = epoch;
  for (uint32_t layer = 0; layer < experts_per_layer_.size(); ++layer) {
    absent_[layer].clear();
    for (uint32_t expert = 0; expert < experts_per_layer_[layer]; ++expert) {
      const std::size_t at = std::size_t{layer} * experts_max_ + expert;
      if (const auto slot = residents.resident_slot(layer, expert)) {
        with_boards_[at] = with_copies_[at] = *slot;
        continue;
      }
      with_boards_[at] = kMissing;
      with_copies_[at] = kStreamed + static_cast<uint32_t>(absent_[layer].size());
      absent_[layer].push_back(expert);
    }
  }
  return true;
}

}  // namespace strata::gpu_worker::cuda
