#pragma once
// What the kernels of attention.cu share: which tokens a row attends to, where its scores lie, and the end of
// a head.

#include "gpu-worker/cuda/attention.h"
#include "gpu-worker/cuda/attention_scratch.h"
#include "gpu-worker/cuda/quantize_block.cuh"
#include "gpu-worker/cuda/radix_select.cuh"
#include "gpu-worker/cuda/reductions.cuh"

namespace strata::gpu_worker::cuda {

// A tile of rows and its scratch. A row has scores (nq, score_stride), then maxima (nq, tiles_max) as
// ordered_bits().
struct ScoreTile {
  uint32_t first_row = 0;
  uint32_t row_count = 0;
  uint32_t tile_tokens = 0;   // tokens of one block of the scores' kernel, a multiple of kScoreTileMin
  uint32_t score_stride = 0;  // floats
  uint32_t tiles_max = 0;
  uint64_t row_floats = 0;
};

// Heads of one key/value head, some of them at a time: grid index y is (kv head, split).
struct HeadSplit {
  uint32_t kv = 0;
  uint32_t first = 0;  // head
  uint32_t count = 0;
};
__device__ inline HeadSplit head_split(const AttentionShape& shape, uint32_t index, uint32_t heads_at_once) {
  const uint32_t group = shape.heads / shape.kv_heads, splits = (group + heads_at_once - 1) / heads_at_once;
  const uint32_t kv = index / splits, skipped = index % splits * heads_at_once;
  return {kv, kv * group + skipped, min(heads_at_once, group - skipped)};
}

// The tokens of a row in ascending order: those of its chosen blocks, then the tail. Everything, where there
// is no indexer.
struct Attended {
  uint32_t chosen_tokens = 0;
  uint32_t tail_begin = 0;
  uint32_t count = 0;
  uint32_t block_tokens = 0;
  const uint32_t* chosen = nullptr;

  __device__ uint32_t token(uint32_t at) const {
    if (at >= chosen_tokens) return tail_begin + (at - chosen_tokens);
    const uint32_t block = at / block_tokens;
    return chosen[block] * block_tokens + (at - block * block_tokens);
  }
};
__device__ inline Attended attended_by(const AttentionArgs& args, uint32_t row, uint32_t position) {
  const uint32_t seen = position + 1, block = args.shape.block_tokens;
  if (args.chosen == nullptr) return {.count = seen};
  const uint32_t blocks = seen / block, chosen = min(blocks, args.shape.blocks_chosen());
  return {.chosen_tokens = chosen * block,
          .tail_begin = blocks * block,
          .count = chosen * block + (seen - blocks * block),
          .block_tokens = block,
          .chosen = args.chosen + uint64_t{row} * args.shape.blocks_chosen()};
}

// A row's keys or values of one kv head: value i of token t is value t * token_stride + first + i.
struct KvPlace {
  const std::byte* values = nullptr;
  const float* scales = nullptr;  // kQ8: of token t at t * kv_heads
  uint32_t token_stride = 0;
  uint32_t first = 0;
};
__device__ inline KvPlace kv_place(const AttentionArgs& args, bool keys, uint32_t sequence, uint32_t kv) {
  const AttentionCache& cache = args.cache;
  const float* scales = (keys ? cache.k_scales : cache.v_scales) + sequence * cache.scales_stride + kv;
  return {(keys ? cache.k : cache.v) + sequence * cache.kv_stride, scales,
          args.shape.kv_heads * args.shape.head_dim, kv * args.shape.head_dim};
}

// The largest score of a head, by one warp.
__device__ inline float largest_score(const float* row_scratch, const AttentionShape& shape,
                                      const ScoreTile& tile, uint32_t head, uint32_t attended) {
  const auto* maxima =
      reinterpret_cast<const uint32_t*>(row_scratch + uint64_t{shape.heads} * tile.score_stride) +
      uint64_t{head} * tile.tiles_max;
  uint32_t largest = 0;
  for (uint32_t i = lane_index(); i < (attended + tile.tile_tokens - 1) / tile.tile_tokens; i += kWarp)
    largest = max(largest, maxima[i]);
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, s));
  return largest == 0 ? -__builtin_inff() : float_of_ordered(largest);
}

// One value of a head's output: divided by the sum of the weights, gated, stored. Lane i of the warp has
// value 32 * part + i of the head; all lanes call it, those with `valid` have a value.
__device__ inline void finish_value(const AttentionArgs& args, uint32_t row, uint32_t head, uint32_t part,
                                    bool valid, float sum, float inverse_total) {
  const uint32_t dim = args.shape.head_dim, i = part * kWarp + lane_index();
  float value = 0.0f;
  if (valid) {
    const float gate = args.q.data[row * args.q.stride + (uint64_t{head} * 2 + 1) * dim + i];
    value = (sum * inverse_total) * sigmoid_value(gate);
    if (args.out.data != nullptr) args.out.data[row * args.out.stride + uint64_t{head} * dim + i] = value;
  }
  if (args.out_q8.data != nullptr)
    quantize_block(value, args.out_q8.data + row * args.out_q8.stride, args.out_q8.cols,
                   head * (dim / kWarp) + part);
}

}  // namespace strata::gpu_worker::cuda
