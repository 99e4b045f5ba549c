#pragma once
// Where every expert is, as the kernels of a window read it: made from the residency at a window boundary,
// when it has changed.

#include <vector>

#include "gpu-worker/cuda/dispatch.h"
#include "gpu-worker/resident_table.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker::cuda {

class ExpertPlaceTables {
 public:
  explicit ExpertPlaceTables(std::vector<uint32_t> experts_per_layer);

  // True when the tables were made anew: the device's copies are out of date. All that is absent is then
  // copied for windows that copy experts.
  bool update(const ResidentTable& residents);
  // Leaves a share of each layer's absent experts to the boards also in such windows: those that were used
  // least. True when with_copies() changed.
  bool leave_to_boards(double share, const shm::UsageBoard& usage);

  // (layers, experts_max): a slot or kMissing; for windows that copy experts, a slot, kStreamed + number, or
  // kMissing.
  const std::vector<uint32_t>& with_boards() const { return with_boards_; }
  const std::vector<uint32_t>& with_copies() const { return with_copies_; }
  uint32_t experts_max() const { return experts_max_; }
  // Experts of a layer that are copied, in ascending order: their number is the index.
  const std::vector<uint32_t>& copied(uint32_t layer) const { return copied_[layer]; }

 private:
  void number_copies(uint32_t layer);

  std::vector<uint32_t> experts_per_layer_;
  uint32_t experts_max_ = 0;
  bool made_ = false;
  uint64_t epoch_ = 0;
  std::vector<uint32_t> with_boards_, with_copies_;
  std::vector<std::vector<uint32_t>> absent_, copied_;  // ascending
  bool shared_ = false;                                 // some absent experts are not copied
};

}  // namespace strata::gpu_worker::cuda
