#pragma once
// How much page-locked memory states are copied through (kept_states.h); the planner counts it, too.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gpu-worker/state_layout.h"

namespace strata::gpu_worker::cuda {

struct StatePiece {
  std::byte* array = nullptr;  // device memory
  uint64_t offset = 0;         // in the blob
  uint64_t bytes = 0;
};

// Of the fixed part at a time: half a millisecond of a CPU, which is long beside a call and short beside the
// whole.
inline constexpr uint64_t kStagedPieceBytes = uint64_t{4} << 20;
inline constexpr uint32_t kStagingHalves = 2;  // the CPU copies one while the bus copies the other

inline uint64_t staging_half_bytes(const StateLayout& layout) {
  return std::max(layout.page_bytes(), std::min(layout.fixed_bytes(), kStagedPieceBytes));
}
inline uint64_t staging_bytes(const StateLayout& layout) {
  return kStagingHalves * staging_half_bytes(layout) + layout.arrays().size() * sizeof(StatePiece);
}

}  // namespace strata::gpu_worker::cuda
