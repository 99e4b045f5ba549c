#pragma once
// Products of float32 matrices on tensor cores, about as accurate as float32: each operand is split in two
// tf32 numbers that together hold 22 of its 24 bits, and three of the four products of parts are added
// ("3xTF32"; the fourth is below the last bit). The order of a sum is the GPU's own, so the bits are not
// those of other kernels: for numerics: fast only. Needs sm_80. All lanes of a warp call these.

#include "gpu-worker/cuda/device_code.cuh"

namespace strata::gpu_worker::cuda {

template <int kCount>
struct SplitFragment {
  uint32_t high[kCount], low[kCount];
  __device__ void set(int i, float x) {
    high[i] = tf32_of(x);
    // Exact, and at most one of its 13 bits is not read.
    low[i] = __float_as_uint(x - __uint_as_float(high[i]));
  }
};

// Which k are the first and the second of a lane in a step of 8. Both operands agree, so any choice gives the
// product; with kNeighbours b may be read from rows that lie 4 banks apart, else from rows 8 apart, without
// conflicts.
enum class StepOrder { kHalves, kNeighbours };
template <StepOrder kOrder>
__device__ inline uint32_t step_k(uint32_t step, int i) {
  const uint32_t t = lane_index() % 4;
  return 8 * step + (kOrder == StepOrder::kNeighbours ? 2 * t + i : t + 4 * i);
}

// d += a . b for kRowTiles tiles of 16 rows and kColumnTiles of 8 columns that share the lane's work: a(tile,
// row, k) with row < 16, b(k, column). Number i of d[tile][column tile] is row result_row(i), column
// result_column(i). Tiles of columns from `column_tiles` on are left out.
template <StepOrder kOrder = StepOrder::kHalves, int kRowTiles, int kColumnTiles, class A, class B>
__device__ inline void add_product(float (&d)[kRowTiles][kColumnTiles][4], uint32_t steps, A a, B b,
                                   int column_tiles = kColumnTiles) {
  const uint32_t g = lane_index() / 4;
#pragma unroll 2
  for (uint32_t step = 0; step < steps; ++step) {
    SplitFragment<2> right[kColumnTiles];
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      if (n >= column_tiles) break;
#pragma unroll
      for (int i = 0; i < 2; ++i) right[n].set(i, b(step_k<kOrder>(step, i), 8 * n + g));
    }
    SplitFragment<4> left[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) left[m].set(i, a(m, g + i % 2 * 8, step_k<kOrder>(step, i / 2)));
    }
    // The small products first. A product waits for the one before it of the same tile, so tiles take turns.
#pragma unroll
    for (int turn = 0; turn < 3; ++turn) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        if (n >= column_tiles) break;
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma_tf32_k8(d[m][n], turn == 0 ? left[m].low : left[m].high,
                      turn == 1 ? right[n].low : right[n].high);
        }
      }
    }
  }
}
__device__ inline uint32_t result_row(int i) { return lane_index() / 4 + i / 2 * 8; }
__device__ inline uint32_t result_column(int i) { return lane_index() % 4 * 2 + i % 2; }

}  // namespace strata::gpu_worker::cuda
