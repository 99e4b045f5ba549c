#pragma once
// First launch of attention.cu: s(t) = dot_f32(query, key of t) * (1/sqrt(d)) for all heads and attended
// tokens, and maxima of them.

#include "gpu-worker/cuda/attention_parts.cuh"
#include "gpu-worker/cuda/dot_tile.cuh"
#include "gpu-worker/cuda/kv_format.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kScoreHeads = 12;  // of one block: their queries are 12 KiB with d = 256
inline constexpr uint32_t kScoreWarpsMax = 8;

// Grid: (tiles of tokens, kv heads and splits of their heads, rows). A warp takes 8 tokens and 4 heads at a
// time; warps that take the other heads of these tokens run beside it, so the keys come from the cache's
// memory once.
template <KvFormat kFormat>
__global__ void __launch_bounds__(kScoreWarpsMax* kWarp, 2)
    attention_scores_kernel(AttentionArgs args, ScoreTile tile) {
  __shared__ uint32_t largest[kScoreHeads];
  float* queries = dynamic_shared<float>();  // (heads of the split, d)
  const uint32_t row = tile.first_row + blockIdx.z, dim = args.shape.head_dim;
  const RowInfo info = args.window.rows[row];
  const Attended attended = attended_by(args, row, info.position);
  const uint32_t begin = blockIdx.x * tile.tile_tokens, end = min(begin + tile.tile_tokens, attended.count);
  if (begin >= attended.count) return;  // the whole block
  const HeadSplit split = head_split(args.shape, blockIdx.y, kScoreHeads);
  const float* source = args.q.data + row * args.q.stride + uint64_t{split.first} * 2 * dim;
  for (uint32_t h = 0; h < split.count; ++h) {
    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x)
      queries[h * dim + i] = source[uint64_t{h} * 2 * dim + i];
  }
  if (threadIdx.x < kScoreHeads) largest[threadIdx.x] = 0;
  __syncthreads();

  const KvPlace place = kv_place(args, true, info.sequence, split.kv);
  float* scores = args.scratch + blockIdx.z * tile.row_floats + uint64_t{split.first} * tile.score_stride;
  const float factor = 1.0f / sqrtf(static_cast<float>(dim));
  const uint32_t quads = (split.count + kTileQueries - 1) / kTileQueries;
  const uint32_t items = (end - begin + kTileKeys - 1) / kTileKeys * quads;
  for (uint32_t item = warp_index(); item < items; item += blockDim.x / kWarp) {
    const uint32_t at = begin + item / quads * kTileKeys, first_head = item % quads * kTileQueries;
    const uint32_t token = attended.token(min(at + lane_index() % kTileKeys, end - 1));
    float of_lane = 0.0f;
    if constexpr (kFormat == KvFormat::kQ8)
      of_lane = __ldg(place.scales + uint64_t{token} * args.shape.kv_heads);
    uint32_t first[kTileKeys];
    float scale[kTileKeys] = {};
#pragma unroll
    for (uint32_t t = 0; t < kTileKeys; ++t) {
      first[t] = __shfl_sync(kAllLanes, token, static_cast<int>(t)) * place.token_stride + place.first;
      if constexpr (kFormat == KvFormat::kQ8) scale[t] = __shfl_sync(kAllLanes, of_lane, static_cast<int>(t));
    }
    const float dot = dot_tile(
        dim, [&](uint32_t t, uint32_t i) { return kv_value<kFormat>(place.values, first[t] + i, scale[t]); },
        [&](uint32_t h, uint32_t i) { return queries[min(first_head + h, split.count - 1) * dim + i]; });
    const float score = dot * factor;
    const uint32_t head = first_head + lane_index() % kTileQueries,
                   place_of_token = at + lane_index() / kTileQueries;
    const bool valid = head < split.count && place_of_token < end;
    if (valid) scores[uint64_t{head} * tile.score_stride + place_of_token] = score;
    uint32_t best = valid ? ordered_bits(score) : 0;
    for (uint32_t s = kTileQueries; s < kWarp; s *= 2) best = max(best, __shfl_xor_sync(kAllLanes, best, s));
    if (lane_index() < kTileQueries && valid) atomicMax(&largest[head], best);
  }
  __syncthreads();
  if (threadIdx.x < split.count) {
    auto* maxima = reinterpret_cast<uint32_t*>(args.scratch + blockIdx.z * tile.row_floats +
                                               uint64_t{args.shape.heads} * tile.score_stride);
    maxima[uint64_t{split.first + threadIdx.x} * tile.tiles_max + blockIdx.x] = largest[threadIdx.x];
  }
}

}  // namespace strata::gpu_worker::cuda
