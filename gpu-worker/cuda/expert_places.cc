#include "gpu-worker/cuda/expert_places.h"

#include <algorithm>
#include <utility>

namespace strata::gpu_worker::cuda {

ExpertPlaceTables::ExpertPlaceTables(std::vector<uint32_t> experts_per_layer)
    : experts_per_layer_(std::move(experts_per_layer)),
      experts_max_(std::ranges::max(experts_per_layer_)),
      with_boards_(experts_per_layer_.size() * experts_max_, kMissing),
      with_copies_(with_boards_),
      copied_(experts_per_layer_.size()),
      copies_outdated_(experts_per_layer_.size(), true) {
  for (auto& experts : copied_) experts.reserve(experts_max_);
}

bool ExpertPlaceTables::update(const ResidentTable& residents) {
  if (made_ && residents.change_count() == changes_seen_) return false;
  const auto set = [&](uint32_t layer, uint32_t expert) { set_place(residents, layer, expert); };
  if (!made_ || !residents.visit_changes(changes_seen_, set)) make_anew(residents);
  made_ = true;
  changes_seen_ = residents.change_count();
  return true;
}

void ExpertPlaceTables::make_anew(const ResidentTable& residents) {
  for (uint32_t layer = 0; layer < experts_per_layer_.size(); ++layer) {
    for (uint32_t expert = 0; expert < experts_per_layer_[layer]; ++expert)
      set_place(residents, layer, expert);
  }
}

void ExpertPlaceTables::set_place(const ResidentTable& residents, uint32_t layer, uint32_t expert) {
  with_boards_[std::size_t{layer} * experts_max_ + expert] =
      residents.resident_slot(layer, expert).value_or(kMissing);
  copies_outdated_[layer] = true;
}

bool ExpertPlaceTables::plan_copies(double share, const shm::UsageBoard& usage) {
  const bool all = share > 0 || shared_;  // what was used least changes with every window
  bool changed = false;
  for (uint32_t layer = 0; layer < experts_per_layer_.size(); ++layer) {
    if (!all && !copies_outdated_[layer]) continue;
    copy_all_absent(layer);
    if (share > 0) leave_to_boards(layer, share, usage);
    number_copies(layer);
    copies_outdated_[layer] = false;
    changed = true;
  }
  shared_ = share > 0;
  return changed;
}

void ExpertPlaceTables::copy_all_absent(uint32_t layer) {
  copied_[layer].clear();
  for (uint32_t expert = 0; expert < experts_per_layer_[layer]; ++expert) {
    const std::size_t at = std::size_t{layer} * experts_max_ + expert;
    with_copies_[at] = with_boards_[at];
    if (with_boards_[at] == kMissing) copied_[layer].push_back(expert);
  }
}

void ExpertPlaceTables::leave_to_boards(uint32_t layer, double share, const shm::UsageBoard& usage) {
  std::vector<uint32_t>& copied = copied_[layer];
  const auto count =
      std::min(copied.size(), static_cast<std::size_t>(share * static_cast<double>(copied.size()) + 0.5));
  const auto split = copied.begin() + static_cast<std::ptrdiff_t>(count);
  const auto uses = [&](uint32_t expert) {
    return usage.decode(layer, expert).load(std::memory_order_relaxed) +
           usage.prefill(layer, expert).load(std::memory_order_relaxed);
  };
  std::ranges::nth_element(copied, split, {},
                           [&](uint32_t expert) { return std::pair(uses(expert), expert); });
  copied.erase(copied.begin(), split);
  std::ranges::sort(copied);  // neighbours in the file go in one copy
}

void ExpertPlaceTables::number_copies(uint32_t layer) {
  for (uint32_t i = 0; i < copied_[layer].size(); ++i)
    with_copies_[std::size_t{layer} * experts_max_ + copied_[layer][i]] = kStreamed + i;
}

}  // namespace strata::gpu_worker::cuda
