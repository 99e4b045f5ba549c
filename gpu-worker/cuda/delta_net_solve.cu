// What a chunk needs before the state before it is known: U, W, P and the decays (delta_net_chunks.cuh).

#include "gpu-worker/cuda/delta_net_chunks.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/split_product.cuh"

namespace strata::gpu_worker::cuda {
namespace {

// Log decays below this are exp() = 0; sums of larger ones would only lose the digits of the others.
constexpr float kLogDecayMin = -105.0f;

// Strides that make the rows of a step's loads meet no bank twice: 4 banks apart where a row is read along
// its values, or in StepOrder::kNeighbours across them, 8 apart where it is read in pairs.
constexpr uint32_t kMatrixStride = kDeltaChunk + 8;
constexpr uint32_t kSpareStride = kTile + 4;

template <int kDim>
struct SolveShared {
  static constexpr uint32_t kStride = kDim + 4;
  float k[kDeltaChunk * kStride];
  float other[kDeltaChunk * kStride];  // queries, later the values of a head
  // Blocks of 16 x 16. Below the diagonal A; on it and, transposed block by block, above it T.
  float matrix[kDeltaChunk * kMatrixStride];
  float spare[(kChunkTiles - 1) * kTile * kSpareStride];
  float sum[kDeltaChunk], sum_low[kDeltaChunk];  // G in two parts
  float beta[kDeltaChunk], beta_grown[kDeltaChunk];

  __device__ float* a(uint32_t i, uint32_t j) { return matrix + i * kTile * kMatrixStride + j * kTile; }
  __device__ float* t(uint32_t i, uint32_t j) { return a(j, i); }
  // G_i - G_j. Behind a strong decay both are large: in one float each the difference would have lost its
  // digits.
  __device__ float between(uint32_t i, uint32_t j) const {
    return (sum[i] - sum[j]) + (sum_low[i] - sum_low[j]);
  }
};

// One warp, two rows a lane.
template <int kDim>
__device__ void sum_decays(const DeltaNetArgs& args, uint32_t first_row, uint32_t head,
                           const ChunkScratch<kDim>& scratch, SolveShared<kDim>& shared) {
  const uint32_t row = 2 * lane_index();
  double sums[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const float log_decay = args.log_decays[uint64_t{first_row + row + i} * args.value_heads + head];
    sums[i] = log_decay < kLogDecayMin ? kLogDecayMin : log_decay;  // NaN stays
  }
  sums[1] += sums[0];
  double before = sums[1];
  for (uint32_t s = 1; s < kWarp; s *= 2) {
    const double other = __shfl_up_sync(kAllLanes, before, s);
    if (lane_index() >= s) before += other;
  }
  before -= sums[1];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const double sum = before + sums[i];
    const auto high = static_cast<float>(sum);
    const float beta = args.beta.data[(first_row + row + i) * args.beta.stride + head];
    const float grown = exp_value(high);
    shared.sum[row + i] = high;
    shared.sum_low[row + i] = static_cast<float>(sum - high);
    shared.beta[row + i] = beta;
    shared.beta_grown[row + i] = beta * grown;
    scratch.grown[row + i] = grown;
  }
  __syncwarp();
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i)
    scratch.rest[row + i] = exp_value(shared.between(kDeltaChunk - 1, row + i));
}

// The products of all pairs of rows up to the diagonal's tile: column tile n of the warp is number 2 n +
// half.
using PairProducts = float[1][kChunkTiles][4];
__device__ inline uint32_t pair_column(const ChunkWarp& warp, int n, int i) {
  return 8 * (2 * n + warp.half) + result_column(i);
}
template <int kDim>
__device__ void multiply_pairs(const ChunkWarp& warp, const float* rows, const float* k,
                               PairProducts& products) {
  constexpr uint32_t kStride = SolveShared<kDim>::kStride;
  add_product(
      products, kDim / 8,
      [&](uint32_t, uint32_t row, uint32_t at) { return rows[(warp.row + row) * kStride + at]; },
      [&](uint32_t at, uint32_t column) {
        return k[(column / 8 * 16 + warp.half * 8 + column % 8) * kStride + at];
      },
      static_cast<int>(warp.tile) + 1);
}

// A into shared memory, P into the scratch.
template <int kDim>
__device__ void weigh_pairs(const ChunkWarp& warp, const PairProducts& keys, const PairProducts& queries,
                            const ChunkScratch<kDim>& scratch, SolveShared<kDim>& shared) {
#pragma unroll
  for (int n = 0; n < static_cast<int>(kChunkTiles); ++n) {
    if (n > static_cast<int>(warp.tile)) break;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t row = warp.row + result_row(i);
      float p[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const uint32_t column = pair_column(warp, n, i + c);
        const float decay = column <= row ? exp_value(shared.between(row, column)) : 0.0f;
        shared.matrix[row * kMatrixStride + column] =
            column < row ? shared.beta[row] * (keys[0][n][i + c] * decay) : 0.0f;
        p[c] = column <= row ? queries[0][n][i + c] * decay : 0.0f;
      }
      store_pair(scratch.p + row * kDeltaChunk + pair_column(warp, n, i), p[0], p[1]);
    }
  }
}

// A diagonal block of A becomes that of T, by forward substitution: a lane for each column. One warp.
__device__ inline void invert_diagonal(float* block) {
  const uint32_t column = lane_index() % kTile;
  float inverse[kTile];
#pragma unroll
  for (uint32_t i = 0; i < kTile; ++i) {
    float value = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < i; ++j) value = fmaf(-block[i * kMatrixStride + j], inverse[j], value);
    inverse[i] = value;
  }
  __syncwarp();  // everybody has read
  if (lane_index() >= kTile) return;
#pragma unroll
  for (uint32_t i = 0; i < kTile; ++i) block[i * kMatrixStride + column] = inverse[i];
}

// to = from . by for blocks of 16 x 16, added to what `sum` holds.
__device__ inline void add_block_product(float (&sum)[1][2][4], const float* from, const float* by,
                                         uint32_t by_stride) {
  add_product(
      sum, 2, [&](uint32_t, uint32_t row, uint32_t at) { return from[row * kMatrixStride + at]; },
      [&](uint32_t at, uint32_t column) { return by[at * by_stride + column]; });
}
__device__ inline void store_block(const float (&values)[1][2][4], float sign, float* to, uint32_t stride) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      store_pair(to + result_row(i) * stride + 8 * n + result_column(i), sign * values[0][n][i],
                 sign * values[0][n][i + 1]);
  }
}

// T below the diagonal, one warp for each column of blocks, after its diagonal:
// T[i][j] = -T[i][i] . sum over k in [j, i) of A[i][k] . T[k][j].
template <int kDim>
__device__ void invert_column(uint32_t j, SolveShared<kDim>& shared) {
  float* spare = shared.spare + j * kTile * kSpareStride;
  for (uint32_t i = j + 1; i < kChunkTiles; ++i) {
    float sum[1][2][4] = {};
    for (uint32_t k = j; k < i; ++k) add_block_product(sum, shared.a(i, k), shared.t(k, j), kMatrixStride);
    store_block(sum, 1.0f, spare, kSpareStride);
    __syncwarp();
    float block[1][2][4] = {};
    add_block_product(block, shared.t(i, i), spare, kSpareStride);
    store_block(block, -1.0f, shared.t(i, j), kMatrixStride);
    __syncwarp();
  }
}

// out = T diag(factors) rows, the warp's tile of rows and half of the columns.
template <int kDim>
__device__ void multiply_by_t(const ChunkWarp& warp, SolveShared<kDim>& shared, const float* factors,
                              const float* rows, float* out) {
  constexpr int kTiles = kDim / 16;
  const uint32_t first = warp.half * (kDim / 2);
  float sums[1][kTiles][4] = {};
  add_product<StepOrder::kNeighbours>(
      sums, warp.steps,
      [&](uint32_t, uint32_t row, uint32_t at) {
        return shared.t(warp.tile, at / kTile)[row * kMatrixStride + at % kTile] * factors[at];
      },
      [&](uint32_t at, uint32_t column) { return rows[at * SolveShared<kDim>::kStride + first + column]; });
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; i += 2)
      store_pair(out + (warp.row + result_row(i)) * kDim + first + 8 * n + result_column(i), sums[0][n][i],
                 sums[0][n][i + 1]);
  }
}

// Block (chunks of the piece, nk): all value heads of a key head, which share its products of pairs.
template <int kDim>
__global__ void __launch_bounds__(kChunkThreads, 2) solve_kernel(DeltaNetArgs args, ChunkRange range) {
  constexpr uint32_t kStride = SolveShared<kDim>::kStride;
  const ChunkPlace place(args.window, range.stretch, range.first + blockIdx.x);
  if (!place.exists) return;
  auto& shared = *dynamic_shared<SolveShared<kDim>>();
  const ChunkWarp warp;
  const uint32_t key_head = blockIdx.y, channels = channel_count(args);
  const float* mixed = args.mixed + uint64_t{place.row} * channels;
  stage_chunk<kDim, kStride>(shared.other, mixed + key_head * kDim, channels);
  stage_chunk<kDim, kStride>(shared.k, mixed + (args.key_heads + key_head) * kDim, channels);
  copies_commit();
  copies_wait<0>();
  __syncthreads();
  PairProducts keys = {}, queries = {};
  multiply_pairs<kDim>(warp, shared.k, shared.k, keys);
  multiply_pairs<kDim>(warp, shared.other, shared.k, queries);

  for (uint32_t head = key_head; head < args.value_heads; head += args.key_heads) {
    const ChunkScratch<kDim> scratch(args, blockIdx.x, head);
    __syncthreads();  // nobody reads the queries, or what the head before had, any more
    stage_chunk<kDim, kStride>(shared.other, mixed + (2 * args.key_heads + head) * kDim, channels);
    copies_commit();
    if (warp_index() == 0) sum_decays<kDim>(args, place.row, head, scratch, shared);
    __syncthreads();
    weigh_pairs<kDim>(warp, keys, queries, scratch, shared);
    __syncthreads();
    if (warp_index() < kChunkTiles) invert_diagonal(shared.a(warp_index(), warp_index()));
    __syncthreads();
    if (warp_index() + 1 < kChunkTiles) invert_column<kDim>(warp_index(), shared);
    copies_wait<0>();
    __syncthreads();
    multiply_by_t<kDim>(warp, shared, shared.beta, shared.other, scratch.u);
    multiply_by_t<kDim>(warp, shared, shared.beta_grown, shared.k, scratch.w);
  }
}

template <int kDim>
void launch_solve(const DeltaNetArgs& args, ChunkRange range, cudaStream_t stream) {
  launch(solve_kernel<kDim>,
         {.grid = dim3(range.count, args.key_heads),
          .block = kChunkThreads,
          .shared_bytes = sizeof(SolveShared<kDim>)},
         stream, args, range);
}

}  // namespace

void solve_chunks(const DeltaNetArgs& args, ChunkRange range, cudaStream_t stream) {
  with_head_size(args.dim, [&](auto dim) { launch_solve<dim()>(args, range, stream); });
}

}  // namespace strata::gpu_worker::cuda
