#pragma once
// Working memory of attention(): a row has scores (heads, score_stride), then maxima (heads,
// score_tiles_max).

#include <cstdint>

namespace strata::gpu_worker::cuda {

// Tokens that one maximum of the scratch covers: the smallest tile of the scores' kernel.
inline constexpr uint32_t kScoreTileMin = 16;

// `attended`: AttentionShape::attended_max().
constexpr uint32_t score_stride(uint32_t attended) { return (attended + 3) / 4 * 4; }  // floats
constexpr uint32_t score_tiles_max(uint32_t attended) {
  return (attended + kScoreTileMin - 1) / kScoreTileMin;
}

}  // namespace strata::gpu_worker::cuda
