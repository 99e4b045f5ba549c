// Many rows of activations: tiles. A warp computes 8 weight rows times 8 rows of activations with 2 of the 64
// lanes of each in a thread: 128 sums in registers, 16 reads of two floats from shared memory for 128 fma. A
// block is 2 x 4 warps; of every 128 columns, two of them (another two each time) turn the weights into
// floats while the others still add.

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_f32_parts.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kWarpRows = 8, kWarpTokens = 8;                    // a warp's tile
constexpr uint32_t kRows = 2 * kWarpRows, kTokens = 4 * kWarpTokens;  // a block's
constexpr uint32_t kChunk = 128;                                      // columns at a time
constexpr uint32_t kUnits = kChunk / kUnitValues;

struct Stage {
  float x[kTokens][kChunk];
  float w[kRows][kChunk];  // unit u of a row swizzled by row * kUnits + u
};
constexpr uint32_t kStages = 2;

struct TileBlock {
  const FloatJob& job;
  FloatRows x;
  uint32_t row, token, token_count;

  __device__ uint32_t columns(uint32_t chunk) const {
    return min(kChunk, job.product.matrix.cols - chunk * kChunk);
  }

  // Rows and tokens beyond the last are copies of it: computed and not stored.
  __device__ void fetch_activations(uint32_t chunk, Stage& to) const {
    for (uint32_t t = warp_index(); t < kTokens; t += kWarps) {
      const uint64_t at = min(token + t, token_count - 1);
      stage_floats(to.x[t], x.data + at * x.stride + chunk * kChunk, columns(chunk), lane_index(), kWarp);
    }
  }
  __device__ void fetch_weights(uint32_t chunk, Stage& to) const {
    static_assert(kRows * kUnits == 2 * kWarp);
    if (warp_index() / 2 != chunk % (kWarps / 2)) return;
    const DeviceMatrix& matrix = job.product.matrix;
    const uint32_t i = threadIdx.x % (2 * kWarp), r = i / kUnits, unit = i % kUnits,
                   first = unit * kUnitValues;
    if (first >= columns(chunk)) return;
    const auto* stored =
        reinterpret_cast<const uint8_t*>(matrix.data + min(row + r, matrix.rows - 1) * matrix.row_bytes);
    dequantize_unit(matrix.type, stored, chunk * kUnits + unit, min(kUnitValues, columns(chunk) - first),
                    to.w[r] + first, i);
  }

  // kWhole: all of kChunk columns are there.
  template <bool kWhole>
  __device__ void accumulate(const Stage& from, uint32_t count,
                             float (&sums)[kWarpRows][kWarpTokens][2]) const {
    const uint32_t first_row = warp_index() % 2 * kWarpRows, first_token = warp_index() / 2 * kWarpTokens;
    const uint32_t lane = lane_index();
#pragma unroll
    for (uint32_t step = 0; step < kChunk; step += kSumLanes) {
      const uint32_t i = step + 2 * lane;
      if (!kWhole && i >= count) break;  // the last chunk's last elements: some threads have none
      const uint32_t unit = i / kUnitValues;
      float2 w[kWarpRows];
#pragma unroll
      for (uint32_t r = 0; r < kWarpRows; ++r) {
        const uint32_t at = unit * kUnitValues + swizzled(i % kUnitValues, (first_row + r) * kUnits + unit);
        w[r] = *reinterpret_cast<const float2*>(from.w[first_row + r] + at);
      }
#pragma unroll
      for (uint32_t t = 0; t < kWarpTokens; ++t) {
        const float2 v = *reinterpret_cast<const float2*>(from.x[first_token + t] + i);
#pragma unroll
        for (uint32_t r = 0; r < kWarpRows; ++r) {
          sums[r][t][0] = fmaf(w[r].x, v.x, sums[r][t][0]);
          if (kWhole || i + 1 < count) sums[r][t][1] = fmaf(w[r].y, v.y, sums[r][t][1]);
        }
      }
    }
  }

  __device__ void store(const FloatJobs& jobs, float (&sums)[kWarpRows][kWarpTokens][2]) const {
    constexpr uint32_t kAtOnce = 16, kRowsAtOnce = kAtOnce / kWarpTokens;
    const uint32_t first_row = row + warp_index() % 2 * kWarpRows;
    const uint32_t first_token = token + warp_index() / 2 * kWarpTokens;
#pragma unroll
    for (uint32_t r = 0; r < kWarpRows; r += kRowsAtOnce) {
      float part[kAtOnce][2];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        part[i][0] = sums[r + i / kWarpTokens][i % kWarpTokens][0];
        part[i][1] = sums[r + i / kWarpTokens][i % kWarpTokens][1];
      }
      const float total = total_of_lane_pairs<kAtOnce>(part);
      const uint32_t i = lane_index() / (kWarp / kAtOnce);
      const uint32_t to_row = first_row + r + i / kWarpTokens, to_token = first_token + i % kWarpTokens;
      if (lane_index() % (kWarp / kAtOnce) == 0 && to_row < job.product.matrix.rows && to_token < token_count)
        store_product(jobs, job, to_token, to_row, total);
    }
  }
};

// Block (row tiles of all jobs, token tiles).
__global__ void __launch_bounds__(kThreads) tile_kernel(FloatJobs jobs, FloatRows x, uint32_t token_count) {
  Stage* stages = dynamic_shared<Stage>();
  const FloatJob& job = jobs.of_block(blockIdx.x);
  const TileBlock block = {.job = job,
                           .x = x,
                           .row = (blockIdx.x - job.first_block) * kRows,
                           .token = blockIdx.y * kTokens,
                           .token_count = token_count};
  const uint32_t chunks = (job.product.matrix.cols + kChunk - 1) / kChunk;
  block.fetch_activations(0, stages[0]);
  block.fetch_weights(0, stages[0]);
  copies_commit();
  float sums[kWarpRows][kWarpTokens][2] = {};
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    copies_wait<0>();
    __syncthreads();
    const Stage& stage = stages[chunk % kStages];
    if (chunk + 1 < chunks) {
      block.fetch_activations(chunk + 1, stages[(chunk + 1) % kStages]);
      copies_commit();
      block.fetch_weights(chunk + 1, stages[(chunk + 1) % kStages]);
    }
    const uint32_t count = block.columns(chunk);
    if (count == kChunk) {
      block.accumulate<true>(stage, count, sums);
    } else {
      block.accumulate<false>(stage, count, sums);
    }
  }
  block.store(jobs, sums);
}

}  // namespace

void multiply_f32_many(FloatJobs jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    jobs.jobs[i].first_block = blocks;
    blocks += (jobs.jobs[i].product.matrix.rows + kRows - 1) / kRows;
  }
  launch(tile_kernel,
         {.grid = dim3(blocks, (rows + kTokens - 1) / kTokens),
          .block = kThreads,
          .shared_bytes = kStages * sizeof(Stage)},
         stream, jobs, x, rows);
}

}  // namespace strata::gpu_worker::cuda
