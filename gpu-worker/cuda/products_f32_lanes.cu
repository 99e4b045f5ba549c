// Few rows of activations and weights of the types that are read value by value: a thread has one lane of
// its block's sums, and what it reads is coalesced and under way at once, without a detour through shared
// memory. Activations are read again by every block, from the caches.

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_f32_parts.cuh"
#include "gpu-worker/cuda/weight_lanes.cuh"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kThreads = kSumLanes;
// Blocks of a multiprocessor, so that the compiler gives registers to all that is under way; it would save
// them for more blocks and wait for every few values alone.
constexpr uint32_t kBlocksMin = 8;

// A block's dot products: kRows of weights times kTokens of activations.
template <int kTokens>
struct LaneTile {
  static constexpr int kRows = 2;
  static constexpr int kProducts = kRows * kTokens;
  // Turns under way together, and of the rest: 2560 columns are 40 turns, 320 are 5.
  static constexpr int kTurns = kTokens == 1 ? 20 : 10, kRestTurns = 5;

  const uint8_t* w[kRows];
  const float* x[kTokens];  // this thread's next value
  float sums[kRows][kTokens] = {};

  // kAtOnce turns as long as there are so many; `turns` of all lanes are left.
  template <int kAtOnce, class Lane>
  __device__ void add_turns(Lane (&weights)[kRows], uint32_t& turns) {
    for (; turns >= kAtOnce; turns -= kAtOnce) {
      float ws[kAtOnce][kRows], xs[kAtOnce][kTokens];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) load(weights, xs[n], ws[n]);
      __syncwarp();  // nothing is read later than here
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) add_products(ws[n], xs[n]);
    }
  }
  template <class Lane>
  __device__ void load(Lane (&weights)[kRows], float (&xs)[kTokens], float (&ws)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) ws[r] = weights[r].next();
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      xs[t] = *x[t];
      x[t] += kSumLanes;
    }
  }
  __device__ void add_products(const float (&ws)[kRows], const float (&xs)[kTokens]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sums[r][t] = fmaf(ws[r], xs[t], sums[r][t]);
    }
  }
  template <class Lane>
  __device__ void add(uint32_t cols) {
    uint32_t turns = cols / kSumLanes;
    Lane weights[kRows] = {Lane(w[0], threadIdx.x), Lane(w[1], threadIdx.x)};
    add_turns<kTurns>(weights, turns);
    add_turns<kRestTurns>(weights, turns);
    add_turns<1>(weights, turns);
    if (threadIdx.x < cols % kSumLanes) {
      float ws[kRows], xs[kTokens];
      load(weights, xs, ws);
      add_products(ws, xs);
    }
  }
  __device__ void add(TensorType type, uint32_t cols) {
    switch (type) {
      case TensorType::kF32:
        return add<FloatLane<F32>>(cols);
      case TensorType::kF16:
        return add<FloatLane<F16>>(cols);
      case TensorType::kBF16:
        return add<FloatLane<BF16>>(cols);
      default:
        return add<Q8Lane>(cols);
    }
  }
};

// Block (row groups of all jobs * groups of kTokens rows of x): groups of x first, so that weights that are
// read again are still in the cache.
template <int kTokens>
__global__ void __launch_bounds__(kThreads, kBlocksMin)
    lanes_kernel(FloatJobs jobs, FloatRows x, uint32_t token_count) {
  using Tile = LaneTile<kTokens>;
  constexpr int kOwn = (Tile::kProducts + 1) / 2;  // products that a warp finishes
  __shared__ float given[2][kOwn][kWarp];
  let_next_kernel_begin();
  await_earlier_kernels();
  const uint32_t groups = (token_count + kTokens - 1) / kTokens, block = blockIdx.x / groups;
  const FloatJob& job = jobs.of_block(block);
  const DeviceMatrix& matrix = job.product.matrix;
  const uint32_t row = (block - job.first_block) * Tile::kRows, token = blockIdx.x % groups * kTokens;
  Tile tile;
  // Rows and tokens beyond the last are copies of it: computed and not stored.
#pragma unroll
  for (uint32_t r = 0; r < Tile::kRows; ++r)
    tile.w[r] =
        reinterpret_cast<const uint8_t*>(matrix.data + min(row + r, matrix.rows - 1) * matrix.row_bytes);
#pragma unroll
  for (uint32_t t = 0; t < kTokens; ++t)
    tile.x[t] = x.data + min(token + t, token_count - 1) * x.stride + threadIdx.x;
  tile.add(matrix.type, matrix.cols);

  // Lanes l and l + 32 meet: each warp gives the other one half of its products.
  const uint32_t warp = warp_index(), lane = lane_index();
  float own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const float first = tile.sums[i / kTokens][i % kTokens];
    const int other = min(i + kOwn, Tile::kProducts - 1);
    const float second = tile.sums[other / kTokens][other % kTokens];
    own[i] = warp == 0 ? first : second;
    given[1 - warp][i][lane] = warp == 0 ? second : first;
  }
  __syncthreads();
  if (warp * kOwn >= Tile::kProducts) return;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own[i] += given[warp][i][lane];
  const float total = total_of_warp<kOwn>(own);
  constexpr uint32_t kShare = kWarp / kOwn;  // threads that have the same total
  const uint32_t i = warp * kOwn + lane / kShare, r = i / kTokens, t = i % kTokens;
  if (lane % kShare == 0 && row + r < matrix.rows && token + t < token_count)
    store_product(jobs, job, token + t, row + r, total);
}

template <int kTokens>
void launch_lanes(FloatJobs& jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < jobs.count; ++i) {
    jobs.jobs[i].first_block = blocks;
    blocks += (jobs.jobs[i].product.matrix.rows + LaneTile<kTokens>::kRows - 1) / LaneTile<kTokens>::kRows;
  }
  launch(lanes_kernel<kTokens>,
         {.grid = blocks * ((rows + kTokens - 1) / kTokens), .block = kThreads, .early = true}, stream, jobs,
         x, rows);
}

}  // namespace

void multiply_f32_lanes(FloatJobs jobs, FloatRows x, uint32_t rows, cudaStream_t stream) {
  if (rows == 1) return launch_lanes<1>(jobs, x, rows, stream);
  if (rows == 2) return launch_lanes<2>(jobs, x, rows, stream);
  launch_lanes<4>(jobs, x, rows, stream);
}

}  // namespace strata::gpu_worker::cuda
