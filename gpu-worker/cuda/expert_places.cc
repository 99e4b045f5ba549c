#include "gpu-worker/cuda/expert_places.h"

#include <algorithm>
#include <utility>

namespace strata::gpu_worker::cuda {

ExpertPlaceTables::ExpertPlaceTables(std::vector<uint32_t> experts_per_layer)
    : experts_per_layer_(std::move(experts_per_layer)),
      experts_max_(std::ranges::max(experts_per_layer_)),
      with_boards_(experts_per_layer_.size() * experts_max_, kMissing),
      with_copies_(with_boards_),
      absent_(experts_per_layer_.size()),
      copied_(experts_per_layer_.size()) {
  for (auto* lists : {&absent_, &copied_}) {
    for (auto& experts : *lists) experts.reserve(experts_max_);
  }
}

bool ExpertPlaceTables::update(const ResidentTable& residents) {
  const uint64_t epoch = residents.residency_epoch();
  if (made_ && epoch == epoch_) return false;
  made_ = true;
  epoch_ = epoch;
  shared_ = false;
  for (uint32_t layer = 0; layer < experts_per_layer_.size(); ++layer) {
    absent_[layer].clear();
    for (uint32_t expert = 0; expert < experts_per_layer_[layer]; ++expert) {
      const std::size_t at = std::size_t{layer} * experts_max_ + expert;
      const auto slot = residents.resident_slot(layer, expert);
      with_boards_[at] = with_copies_[at] = slot.value_or(kMissing);
      if (!slot) absent_[layer].push_back(expert);
    }
    copied_[layer] = absent_[layer];
    number_copies(layer);
  }
  return true;
}

bool ExpertPlaceTables::leave_to_boards(double share, const shm::UsageBoard& usage) {
  if (share == 0 && !shared_) return false;
  shared_ = share > 0;
  for (uint32_t layer = 0; layer < experts_per_layer_.size(); ++layer) {
    std::vector<uint32_t>& copied = copied_[layer];
    copied = absent_[layer];
    const auto count =
        std::min(copied.size(), static_cast<std::size_t>(share * static_cast<double>(copied.size()) + 0.5));
    const auto split = copied.begin() + static_cast<std::ptrdiff_t>(count);
    const auto uses = [&](uint32_t expert) {
      return usage.decode(layer, expert).load(std::memory_order_relaxed) +
             usage.prefill(layer, expert).load(std::memory_order_relaxed);
    };
    std::ranges::nth_element(copied, split, {},
                             [&](uint32_t expert) { return std::pair(uses(expert), expert); });
    for (auto left = copied.begin(); left != split; ++left)
      with_copies_[std::size_t{layer} * experts_max_ + *left] = kMissing;
    copied.erase(copied.begin(), split);
    std::ranges::sort(copied);  // neighbours in the file go in one copy
    number_copies(layer);
  }
  return true;
}

void ExpertPlaceTables::number_copies(uint32_t layer) {
  for (uint32_t i = 0; i < copied_[layer].size(); ++i)
    with_copies_[std::size_t{layer} * experts_max_ + copied_[layer][i]] = kStreamed + i;
}

}  // namespace strata::gpu_worker::cuda
