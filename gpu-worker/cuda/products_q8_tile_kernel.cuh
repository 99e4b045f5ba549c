#pragma once
// The kernel around products_q8_tile.cuh, and its launch: which block computes what.

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_q8_tile.cuh"

namespace strata::gpu_worker::cuda {

// A build for one GPU keeps only the kernels that it runs.
template <bool kTensorCores>
__host__ __device__ constexpr bool tile_runs_here() {
#if defined(__CUDA_ARCH__)
  return kTensorCores == (__CUDA_ARCH__ >= 800);
#else
  return true;
#endif
}

// Which group a tile of tokens belongs to, and its number in the group. The whole block calls it.
__device__ inline uint32_t find_group(uint32_t groups, const uint32_t* tile_ends, uint32_t& token_tile) {
  __shared__ uint32_t found;
  for (uint32_t g = threadIdx.x; g < groups; g += kTileThreads) {
    const uint32_t begin = g == 0 ? 0 : tile_ends[g - 1];
    if (begin <= token_tile && token_tile < tile_ends[g]) found = g;
  }
  __syncthreads();
  if (found > 0) token_tile -= tile_ends[found - 1];
  return found;
}

// Block b: rows b % row_tiles of token tile b / row_tiles; those of groups follow each other, group g's last
// is tile_ends[g] - 1.
template <class F, class S, bool kTensorCores>
__global__ __launch_bounds__(kTileThreads, 2) void tile_kernel(const ProductSource source, uint32_t row_tiles,
                                                               const uint32_t* tile_ends) {
  if constexpr (tile_runs_here<kTensorCores>()) {
    uint32_t group = 0, token_tile = blockIdx.x / row_tiles;
    if (source.hits.counts != nullptr) {
      const uint32_t groups = source.hits.counts->groups;
      if (groups == 0 || token_tile >= tile_ends[groups - 1]) return;
      group = find_group(groups, tile_ends, token_tile);
    }
    const ProductTile tile = find_tile<S::kSide>(source, group, blockIdx.x % row_tiles);
    TileProduct<F, S, kTensorCores>(tile, token_tile * S::kSide, *dynamic_shared<TileMemory<F, S>>())
        .compute();
  }
}

// tile_ends[g] = number of tiles of `side` tokens of groups 0 .. g.
void find_tile_ends(const HitList& hits, uint32_t side, uint32_t* tile_ends, cudaStream_t stream);

template <class F, class S, bool kTensorCores>
void launch_tiles(const ProductLaunch& args, cudaStream_t stream) {
  static_assert(sizeof(TileMemory<F, S>) <= TileMemory<F, S>::kMost);
  const uint32_t row_tiles = tiles_of<S::kSide>(args.source);
  uint64_t token_tiles = (args.source.tokens + S::kSide - 1) / S::kSide;
  if (args.source.hits.counts != nullptr) {
    token_tiles = args.pairs_max / S::kSide + args.groups_max;
    find_tile_ends(args.source.hits, S::kSide, args.tile_ends, stream);
  }
  launch(tile_kernel<F, S, kTensorCores>,
         {.grid = dim3(static_cast<uint32_t>(row_tiles * token_tiles)),
          .block = dim3(kTileThreads),
          .shared_bytes = sizeof(TileMemory<F, S>)},
         stream, args.source, row_tiles, static_cast<const uint32_t*>(args.tile_ends));
}

}  // namespace strata::gpu_worker::cuda
