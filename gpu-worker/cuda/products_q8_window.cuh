#pragma once
// Products for few tokens, bound by reading the weights. Each warp works for itself on 4 rows: it copies them
// to shared memory in chunks of 32 units, several chunks ahead, with 16 bytes a lane; then lane u makes the
// terms of unit u for all rows and tokens; then one lane for each row and token takes them in their order.
// The terms go through shared memory, 33 to a row, so that neither side meets bank conflicts.

#include "gpu-worker/cuda/launch.h"
#include "gpu-worker/cuda/products_q8_source.cuh"
#include "gpu-worker/cuda/products_q8_unit.cuh"

namespace strata::gpu_worker::cuda {

template <class F, int kTokens>
struct WindowShape {
  static constexpr int kRows = 4;
  static_assert(kRows * kTokens <= static_cast<int>(kWarp), "a lane for each row and token");
  static constexpr int kChunkUnits = 32;
  static constexpr int kChunkBytes = kChunkUnits / F::kUnits * F::kBlockBytes;
  static constexpr int kPitch = (kChunkBytes + 30) / 16 * 16;  // aligned outwards on both sides
  // 2560 columns are three chunks: all of a row's bytes are on their way at once. At least 8 KiB a warp keep
  // about 100 KiB a multiprocessor in flight, four times bandwidth times latency of an H200.
  static constexpr int kStages = 3;
  static constexpr int kTerms = UnitShape<F>::kTerms;
  static constexpr int kTermStride = kTerms * kChunkUnits + 1;
  static constexpr int kStageBytes = kRows * kPitch;
  static constexpr int kWarpBytes =
      (kStages * kStageBytes + kRows * kTokens * kTermStride * 8 + 15) / 16 * 16;
  static constexpr int kWarps = 2;  // a block; at most 52 KiB for any type
};

// Rows that the last tile lacks are computed as its last one again, and not stored: straight code for all.
template <class F, int kTokens>
__device__ inline const uint8_t* chunk_of_row(const ProductTile& tile, uint32_t r, uint32_t chunk) {
  const uint32_t row = r < tile.row_count ? r : tile.row_count - 1;
  return tile.weights + row * tile.row_bytes + uint64_t{chunk} * WindowShape<F, kTokens>::kChunkBytes;
}

template <class F, int kTokens>
__device__ inline void copy_chunk(const ProductTile& tile, uint32_t chunk, uint8_t* stage) {
  using Shape = WindowShape<F, kTokens>;
  const uint32_t rest = tile.units - chunk * Shape::kChunkUnits;
  const uint32_t bytes =
      rest < Shape::kChunkUnits ? rest / F::kUnits * F::kBlockBytes : uint32_t{Shape::kChunkBytes};
#pragma unroll
  for (uint32_t r = 0; r < Shape::kRows; ++r) {
    const uint8_t* begin = chunk_of_row<F, kTokens>(tile, r, chunk);
    const uint32_t before = bytes_before(begin);
    for (uint32_t at = 16 * lane_index(); at < before + bytes; at += 16 * kWarp)
      copy16_async(stage + r * Shape::kPitch + at, begin - before + at);
  }
}

// tokens of the tile from `first` on, at most kTokens
template <class F, int kTokens>
__device__ void window_tile(const ProductTile& tile, uint32_t first, uint8_t* shared) {
  using Shape = WindowShape<F, kTokens>;
  constexpr uint32_t kRows = Shape::kRows;
  auto* terms = reinterpret_cast<float2*>(shared + Shape::kStages * Shape::kStageBytes);
  const uint32_t lane = lane_index();
  const uint32_t tokens = tile.tokens - first < kTokens ? tile.tokens - first : kTokens;
  const uint32_t chunks = (tile.units + Shape::kChunkUnits - 1) / Shape::kChunkUnits;
  const std::byte* x_rows[kTokens];
#pragma unroll
  for (uint32_t t = 0; t < kTokens; ++t) x_rows[t] = tile.x_row(first + (t < tokens ? t : 0));

#pragma unroll
  for (uint32_t c = 0; c + 1 < Shape::kStages; ++c) {
    if (c < chunks) copy_chunk<F, kTokens>(tile, c, shared + c * Shape::kStageBytes);
    copies_commit();
  }
  float acc = 0.0f;
  uint32_t stage = 0;
  for (uint32_t c = 0; c < chunks; ++c) {
    const uint32_t unit = c * Shape::kChunkUnits + lane;
    const bool active = unit < tile.units;
    ActivationUnit x;
    if (active) x.load(x_rows[0], unit, tile.units);

    const uint32_t ahead = c + Shape::kStages - 1;
    const uint32_t free_stage = stage == 0 ? Shape::kStages - 1 : stage - 1;
    if (ahead < chunks) copy_chunk<F, kTokens>(tile, ahead, shared + free_stage * Shape::kStageBytes);
    copies_commit();
    copies_wait<Shape::kStages - 1>();
    __syncwarp();

    if (active) {
      WeightUnit<F> w[kRows];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const uint8_t* blocks = shared + stage * Shape::kStageBytes + r * Shape::kPitch +
                                bytes_before(chunk_of_row<F, kTokens>(tile, r, c));
        w[r].load(blocks + lane / F::kUnits * F::kBlockBytes, static_cast<int>(lane % F::kUnits));
      }
#pragma unroll
      for (uint32_t t = 0; t < kTokens; ++t) {
        if (t >= tokens) break;
        ActivationUnit next = x;
        if (t + 1 < kTokens && t + 1 < tokens)
          next.load(x_rows[t + 1 < kTokens ? t + 1 : t], unit, tile.units);
        const int first_sum = kNeedsFirstSum<F> ? x.first_sum() : 0;
#pragma unroll
        for (uint32_t r = 0; r < kRows; ++r) {
          float2 made[Shape::kTerms];
          make_terms<F>(w[r], x, first_sum, made);
#pragma unroll
          for (int i = 0; i < Shape::kTerms; ++i)
            terms[(r * kTokens + t) * Shape::kTermStride + i * Shape::kChunkUnits + lane] = made[i];
        }
        x = next;
      }
    }
    __syncwarp();
    if (lane < kRows * kTokens) {
      const uint32_t rest = tile.units - c * Shape::kChunkUnits;
      const uint32_t count = rest < Shape::kChunkUnits ? rest : Shape::kChunkUnits;
      const float2* mine = terms + lane * Shape::kTermStride;
#pragma unroll 8
      for (uint32_t u = 0; u < count; ++u) {
#pragma unroll
        for (int i = 0; i < Shape::kTerms; ++i) {
          const float2 term = mine[i * Shape::kChunkUnits + u];
          acc = fmaf(term.x, term.y, acc);
        }
      }
    }
    __syncwarp();
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  const uint32_t row = lane / kTokens, token = lane % kTokens;
  if (row < tile.row_count && row < kRows && token < tokens)
    tile.out_row(first + token)[row] = acc * tile.scale;
}

// Warp w of the launch: tile w % tiles of group w / tiles; blocks of y take every gridDim.y-th kTokens
// tokens.
template <class F, int kTokens>
__global__ void window_kernel(const ProductSource source, uint32_t tiles) {
  using Shape = WindowShape<F, kTokens>;
  const uint32_t index = blockIdx.x * Shape::kWarps + warp_index();
  const uint32_t group = index / tiles;
  const uint32_t groups = source.hits.counts == nullptr ? 1 : source.hits.counts->groups;
  if (group >= groups) return;
  const ProductTile tile = find_tile(source, group, index - group * tiles, Shape::kRows);
  uint8_t* shared = dynamic_shared<uint8_t>() + warp_index() * Shape::kWarpBytes;
  for (uint32_t first = blockIdx.y * kTokens; first < tile.tokens; first += gridDim.y * kTokens)
    window_tile<F, kTokens>(tile, first, shared);
}

template <class F, int kTokens>
void launch_window(const ProductLaunch& args, cudaStream_t stream) {
  using Shape = WindowShape<F, kTokens>;
  const uint32_t tiles = tiles_of(args.source, Shape::kRows);
  const bool grouped = args.source.hits.counts != nullptr;
  const uint64_t warps = uint64_t{tiles} * args.groups_max;
  // Groups have few tokens: a warp takes all of them, one tile after the other.
  const uint32_t token_tiles = grouped ? 1 : (args.source.tokens + kTokens - 1) / kTokens;
  launch(window_kernel<F, kTokens>,
         {.grid = dim3(static_cast<uint32_t>((warps + Shape::kWarps - 1) / Shape::kWarps), token_tiles),
          .block = dim3(Shape::kWarps * kWarp),
          .shared_bytes = Shape::kWarps * Shape::kWarpBytes},
         stream, args.source, tiles);
}

}  // namespace strata::gpu_worker::cuda
