#include "gpu-worker/cuda/attention_blocks.h"

#include <algorithm>

#include "gpu-worker/cuda/dot_tile.cuh"
#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/radix_select.cuh"
#include "services/base/check.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint32_t kScoreWarps = 8;
constexpr uint32_t kBlockKeys = kScoreWarps * kTileKeys;  // keys per thread block
constexpr uint32_t kRowsAtOnce = 8;                       // that meet them there, in a window of many rows
constexpr uint32_t kManyRows = 64;
// The grid must fit the longest sequence; blocks that find nothing to do would cost more than the loop over
// tiles.
constexpr uint32_t kScoreBlocks = 264;    // of a launch: two for each processor of an H200
constexpr uint32_t kScoreBlocksMin = 16;  // of a group of rows
constexpr std::size_t kQueryBytesMax = 32 * 1024;

// Rows first_row.. of the window; row i has its scores in row i of the scratch.
struct RowTile {
  uint32_t first_row = 0;
  uint32_t row_count = 0;
};

__device__ uint32_t complete_blocks(const AttentionBlocksArgs& args, uint32_t row) {
  return (args.window.rows[row].position + 1) / args.shape.block_tokens;
}

// score = sum over the indexer's heads, ascending, of relu(query . block key), by one warp: lane t gets that
// of key first_key + t.
__device__ float score_of_keys(const float* pooled, uint32_t first_key, uint32_t blocks, const float* queries,
                               uint32_t heads, uint32_t dim) {
  uint32_t first[kTileKeys];
#pragma unroll
  for (uint32_t t = 0; t < kTileKeys; ++t) first[t] = min(first_key + t, blocks - 1) * dim;
  float score = 0.0f;
#pragma unroll 1
  for (uint32_t h = 0; h < heads; h += kTileQueries) {
    const float dot = dot_tile(
        dim, [&](uint32_t t, uint32_t j) { return pooled[first[t] + j]; },
        [&](uint32_t q, uint32_t j) { return queries[min(h + q, heads - 1) * dim + j]; });
    const float relu = dot > 0 ? dot : 0.0f;
#pragma unroll
    for (uint32_t q = 0; q < kTileQueries; ++q) {
      const float of_head =
          __shfl_sync(kAllLanes, relu, static_cast<int>(lane_index() % kTileKeys * kTileQueries + q));
      if (h + q < heads) score += of_head;
    }
  }
  return score;
}

// Grid: (tiles of keys, or fewer blocks that take several, groups of rows).
__global__ void __launch_bounds__(kScoreWarps* kWarp, 2)
    block_scores_kernel(AttentionBlocksArgs args, RowTile tile, uint32_t rows_at_once) {
  let_next_kernel_begin();
  await_earlier_kernels();
  float* queries = dynamic_shared<float>();  // (rows_at_once, ni, di)
  const uint32_t heads = args.shape.indexer_heads, dim = args.shape.indexer_dim, width = heads * dim;
  const uint32_t begin = blockIdx.y * rows_at_once, end = min(begin + rows_at_once, tile.row_count);
  uint32_t most = 0;  // blocks of a row that chooses
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t blocks = complete_blocks(args, tile.first_row + i);
    if (blocks > args.shape.blocks_chosen()) most = max(most, blocks);
  }
  if (blockIdx.x * kBlockKeys >= most) return;  // the whole block
  for (uint32_t i = begin; i < end; ++i) {
    const float* source = args.indexer_q.data + (tile.first_row + i) * args.indexer_q.stride;
    for (uint32_t j = threadIdx.x; j < width; j += blockDim.x) queries[(i - begin) * width + j] = source[j];
  }
  __syncthreads();

  const uint64_t stride = args.cache.capacity / args.shape.block_tokens;
#pragma unroll 1
  for (uint32_t first = blockIdx.x * kBlockKeys; first < most; first += gridDim.x * kBlockKeys) {
    const uint32_t first_key = first + warp_index() * kTileKeys;
#pragma unroll 1
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t blocks = complete_blocks(args, tile.first_row + i);
      if (blocks <= args.shape.blocks_chosen() || first_key >= blocks) continue;  // the whole warp
      const float* pooled =
          args.cache.pooled + args.window.rows[tile.first_row + i].sequence * args.cache.pooled_stride;
      const float score = score_of_keys(pooled, first_key, blocks, queries + (i - begin) * width, heads, dim);
      if (lane_index() < kTileKeys && first_key + lane_index() < blocks)
        args.scores[i * stride + first_key + lane_index()] = score;
    }
  }
}

// The chosen blocks of one row, ascending. Scores are +0 or above and never NaN, so their bits are in their
// order.
__global__ void __launch_bounds__(1024) choose_kernel(AttentionBlocksArgs args, RowTile tile) {
  __shared__ RadixShared shared;
  let_next_kernel_begin();
  await_earlier_kernels();
  const uint32_t row = tile.first_row + blockIdx.x;
  const uint32_t blocks = complete_blocks(args, row), wanted = args.shape.blocks_chosen();
  uint32_t* chosen = args.chosen + uint64_t{row} * wanted;
  if (blocks <= wanted) {
    for (uint32_t b = threadIdx.x; b < blocks; b += blockDim.x) chosen[b] = b;
    return;
  }
  const float* scores = args.scores + uint64_t{blockIdx.x} * (args.cache.capacity / args.shape.block_tokens);
  select_largest(
      blocks, wanted, shared, [&](uint32_t b) { return bits_of_float(scores[b]); },
      [&](uint32_t place, uint32_t b) { chosen[place] = b; });
}

}  // namespace

void attention_blocks(const AttentionBlocksArgs& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  CHECK(shape.block_tokens > 0 && shape.blocks_chosen() > 0);
  const uint32_t blocks_max = args.cache.capacity / shape.block_tokens, rows = args.window.row_count;
  const bool may_choose = blocks_max > shape.blocks_chosen();
  CHECK(uint64_t{blocks_max} * shape.indexer_dim <= UINT32_MAX, "{} blocks", blocks_max);
  CHECK(!may_choose || (args.scores != nullptr && args.score_rows > 0));
  const std::size_t query_bytes = std::size_t{shape.indexer_heads} * shape.indexer_dim * sizeof(float);
  const uint32_t rows_at_once =
      rows < kManyRows
          ? 1
          : static_cast<uint32_t>(std::clamp<std::size_t>(kQueryBytesMax / query_bytes, 1, kRowsAtOnce));
  const uint32_t rows_per_tile = may_choose ? std::min(args.score_rows, 32768u) : rows;
  for (uint32_t first = 0; first < rows; first += rows_per_tile) {
    const RowTile tile{first, std::min(rows_per_tile, rows - first)};
    if (may_choose) {
      const uint32_t groups = (tile.row_count + rows_at_once - 1) / rows_at_once;
      const uint32_t key_tiles = (blocks_max + kBlockKeys - 1) / kBlockKeys;
      launch(block_scores_kernel,
             {.grid = dim3(std::min(key_tiles, std::max(kScoreBlocks / groups, kScoreBlocksMin)), groups),
              .block = dim3(kScoreWarps * kWarp),
              .shared_bytes = rows_at_once * query_bytes,
              .early = true},
             stream, args, tile, rows_at_once);
    }
    launch(choose_kernel,
           {.grid = dim3(tile.row_count), .block = rows < kManyRows ? 1024 : 256, .early = true}, stream,
           args, tile);
  }
}

}  // namespace strata::gpu_worker::cuda
