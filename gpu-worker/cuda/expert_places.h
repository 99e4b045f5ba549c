#pragma once
// Where every expert is, as the kernels of a window read it: brought up to date from the residency at a
// window boundary, when it has changed.

#include <vector>

#include "gpu-worker/cuda/dispatch.h"
#include "gpu-worker/resident_table.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker::cuda {

class ExpertPlaceTables {
 public:
  explicit ExpertPlaceTables(std::vector<uint32_t> experts_per_layer);

  // Takes note of what came and went; work by the number of changes. True when with_boards() changed: the
  // device's copy is out of date.
  bool update(const ResidentTable& residents);
  // Before a window that copies experts: all that is absent is copied, but for a share of each layer's absent
  // experts, those that were used least, which is left to the boards. True when with_copies() changed.
  bool plan_copies(double share, const shm::UsageBoard& usage);

  // (layers, experts_max): a slot or kMissing; for windows that copy experts, a slot, kStreamed + number, or
  // kMissing.
  const std::vector<uint32_t>& with_boards() const { return with_boards_; }
  const std::vector<uint32_t>& with_copies() const { return with_copies_; }
  uint32_t experts_max() const { return experts_max_; }
  // Experts of a layer that are copied, in ascending order: their number is the index.
  const std::vector<uint32_t>& copied(uint32_t layer) const { return copied_[layer]; }

 private:
  void make_anew(const ResidentTable& residents);
  void set_place(const ResidentTable& residents, uint32_t layer, uint32_t expert);
  void copy_all_absent(uint32_t layer);
  void leave_to_boards(uint32_t layer, double share, const shm::UsageBoard& usage);
  void number_copies(uint32_t layer);

  std::vector<uint32_t> experts_per_layer_;
  uint32_t experts_max_ = 0;
  bool made_ = false;
  uint64_t changes_seen_ = 0;
  std::vector<uint32_t> with_boards_, with_copies_;
  std::vector<std::vector<uint32_t>> copied_;  // ascending
  std::vector<bool> copies_outdated_;          // (layers) with_boards() has changed since plan_copies()
  bool shared_ = false;                        // some absent experts are not copied
};

}  // namespace strata::gpu_worker::cuda
