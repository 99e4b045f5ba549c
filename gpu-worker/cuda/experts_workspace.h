#pragma once
// Working memory of compute_experts(): one function that cuts it and, without memory, counts it.

#include "gpu-worker/cuda/experts.h"

namespace strata::gpu_worker::cuda {

constexpr uint32_t expert_groups_max(const LayerExpertsView& experts, uint32_t pairs) {
  return pairs < experts.count ? pairs : experts.count;
}

// Rows of working memory belong to the pairs in the order of the list.
struct ExpertsWorkspace {
  FloatRows gate, up;             // (pairs, width)
  Q8Rows h;                       // (pairs, width), or in `gate` as floats
  uint32_t* tile_ends = nullptr;  // (expert_groups_max)
  uint64_t bytes = 0;
};
ExpertsWorkspace divide_workspace(const LayerExpertsView& experts, uint32_t pairs, std::byte* at);

}  // namespace strata::gpu_worker::cuda
