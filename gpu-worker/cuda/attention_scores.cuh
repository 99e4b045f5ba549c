#pragma once
// First launch of attention.cu: s(t) = dot_f32(query, key of t) * (1/sqrt(d)) for all heads and attended
// tokens, and maxima of them. For windows of few rows, and for heads that attention_scores_many.cuh does not
// know.

#include "gpu-worker/cuda/attention_parts.cuh"
#include "gpu-worker/cuda/dot_tile.cuh"
#include "gpu-worker/cuda/kv_format.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kScoreHeads = 12;  // of one block: their queries are 12 KiB with d = 256
inline constexpr uint32_t kScoreWarpsMax = 8;

// Queries in shared memory, then (kStaged) the keys of the block's tokens as they are stored.
struct ScoresShared {
  float* queries;     // (heads of the split, d)
  std::byte* keys;    // (tokens of the tile, d)
  uint32_t* tokens;   // (tokens of the tile)
  uint32_t* largest;  // (heads of the split)
};

// Brings the block's queries, and with kStaged its keys: everything is on its way before anything is waited
// for.
template <KvFormat kFormat, bool kStaged>
__device__ void bring_inputs(const ScoresShared& shared, const float* queries, uint32_t heads, uint32_t dim,
                             const Attended& attended, uint32_t begin, uint32_t count, const KvPlace& place,
                             bool aligned) {
  if (aligned) {
    const uint32_t chunks = dim / 4;
    for (uint32_t c = threadIdx.x; c < heads * chunks; c += blockDim.x) {
      const uint32_t h = c / chunks;
      copy16_async(shared.queries + c * 4, queries + h * 2 * dim + (c - h * chunks) * 4);
    }
  } else {
    for (uint32_t i = threadIdx.x; i < heads * dim; i += blockDim.x)
      shared.queries[i] = queries[i / dim * 2 * dim + i % dim];
  }
  if constexpr (kStaged) {
    for (uint32_t t = threadIdx.x; t < count; t += blockDim.x) shared.tokens[t] = attended.token(begin + t);
    __syncthreads();
    const uint32_t row_bytes = dim * kv_value_bytes(kFormat), chunks = row_bytes / 16;
    for (uint32_t c = threadIdx.x; c < count * chunks; c += blockDim.x) {
      const uint32_t t = c / chunks;
      const uint64_t first = uint64_t{shared.tokens[t]} * place.token_stride + place.first;
      copy16_async(shared.keys + c * 16,
                   place.values + first * kv_value_bytes(kFormat) + (c - t * chunks) * 16);
    }
  }
  copies_commit();
  copies_wait<0>();
  __syncthreads();
}

// Grid: (tiles of tokens, kv heads and splits of their heads, rows). A warp takes 8 tokens and 4 heads at a
// time. Warps that take the other heads of these tokens run beside it: keys come from far away once, by way
// of the processor's cache, or (kStaged, for windows so small that there is nothing else to do meanwhile) all
// at once into shared memory.
template <KvFormat kFormat, bool kStaged>
__global__ void __launch_bounds__(kScoreWarpsMax* kWarp, 2)
    attention_scores_kernel(AttentionArgs args, ScoreTile tile, bool aligned) {
  __shared__ uint32_t largest[kScoreHeads];
  __shared__ uint32_t tokens[kScoreTileMin];
  let_next_kernel_begin();
  await_earlier_kernels();
  const uint32_t row = tile.first_row + blockIdx.z, dim = args.shape.head_dim;
  const RowInfo info = args.window.rows[row];
  const Attended attended = attended_by(args, row, info.position);
  const uint32_t begin = blockIdx.x * tile.tile_tokens, end = min(begin + tile.tile_tokens, attended.count);
  if (begin >= attended.count) return;  // the whole block
  const HeadSplit split = head_split(args.shape, blockIdx.y, kScoreHeads);
  float* queries = dynamic_shared<float>();
  const ScoresShared shared{queries, reinterpret_cast<std::byte*>(queries + split.count * dim), tokens,
                            largest};
  const KvPlace place = kv_place(args, true, info.sequence, split.kv);
  if (threadIdx.x < kScoreHeads) largest[threadIdx.x] = 0;
  bring_inputs<kFormat, kStaged>(shared, args.q.data + row * args.q.stride + uint64_t{split.first} * 2 * dim,
                                 split.count, dim, attended, begin, end - begin, place, aligned);

  float* scores = args.scratch + blockIdx.z * tile.row_floats + uint64_t{split.first} * tile.score_stride;
  const float factor = 1.0f / sqrtf(static_cast<float>(dim));
  const uint32_t quads = (split.count + kTileQueries - 1) / kTileQueries;
  const uint32_t items = (end - begin + kTileKeys - 1) / kTileKeys * quads;
  for (uint32_t item = warp_index(); item < items; item += blockDim.x / kWarp) {
    const uint32_t at = begin + item / quads * kTileKeys, first_head = item % quads * kTileQueries;
    const uint32_t of_lane = min(at + lane_index() % kTileKeys, end - 1);
    uint32_t token = 0;
    float token_scale = 0.0f;
    if constexpr (kStaged) {
      token = of_lane - begin;  // its place in shared memory
      if constexpr (kFormat == KvFormat::kQ8)
        token_scale = place.scales[uint64_t{tokens[token]} * args.shape.kv_heads];
    } else {
      token = attended.token(of_lane);
      if constexpr (kFormat == KvFormat::kQ8)
        token_scale = place.scales[uint64_t{token} * args.shape.kv_heads];
    }
    uint32_t first[kTileKeys];
    float scale[kTileKeys] = {};
#pragma unroll
    for (uint32_t t = 0; t < kTileKeys; ++t) {
      const uint32_t from = __shfl_sync(kAllLanes, token, static_cast<int>(t));
      first[t] = kStaged ? from * dim : from * place.token_stride + place.first;
      if constexpr (kFormat == KvFormat::kQ8)
        scale[t] = __shfl_sync(kAllLanes, token_scale, static_cast<int>(t));
    }
    const std::byte* keys = kStaged ? shared.keys : place.values;
    const float dot = dot_tile(
        dim, [&](uint32_t t, uint32_t i) { return kv_value<kFormat>(keys, first[t] + i, scale[t]); },
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
