#pragma once
// First launch of attention.cu for windows of many rows, where instructions count. Eight threads share the 64
// lanes of a dot product (docs/numerics.md): thread c has lanes c, c + 8, .., c + 56, walks their part of the
// tree depth first, so that few sums wait, and only the last three steps cross threads. A thread has 8 keys
// by 4 queries, so a value from shared memory serves 4 or 8 fma.

#include "gpu-worker/cuda/attention_parts.cuh"
#include "gpu-worker/cuda/kv_format.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kManyHeads = 12;  // of one block: a warp for four
inline constexpr uint32_t kManyKeys = 32;   // in shared memory at a time: 33 KiB with d = 256
inline constexpr uint32_t kManyBlocks = 4;  // of a processor: some copy while others calculate
inline constexpr uint32_t kManyClasses = 8;
inline constexpr uint32_t kManyQueries = 4;
inline constexpr uint32_t kManySums = kManyClasses * kManyQueries;  // key slot * 4 + query

// A key in shared memory. The padding puts what the threads of a warp read side by side into different banks.
template <KvFormat kFormat>
__host__ __device__ constexpr uint32_t many_key_bytes(uint32_t dim) {
  return dim * kv_value_bytes(kFormat) + (kFormat == KvFormat::kF32 ? 32 : 16);
}
template <KvFormat kFormat>
constexpr std::size_t many_shared_bytes(uint32_t dim, uint32_t quads) {
  return std::size_t{quads} * dim * sizeof(float4) + kManyKeys * many_key_bytes<kFormat>(dim);
}

// kQ8: a key's scale lies in its padding.
template <uint32_t kDim>
__device__ inline float* scale_of_key(std::byte* keys, uint32_t key) {
  return reinterpret_cast<float*>(keys + key * many_key_bytes<KvFormat::kQ8>(kDim) + kDim);
}

// Sums of lanes first, first + kStep, ..; lane(sums, l) makes those of lane l alone.
template <uint32_t kStep, class Lane>
__device__ inline void sum_lanes(float (&sums)[kManySums], uint32_t first, const Lane& lane) {
  if constexpr (kStep == 64) {
    lane(sums, first);
  } else {
    sum_lanes<2 * kStep>(sums, first, lane);
    float others[kManySums];
    sum_lanes<2 * kStep>(others, first + kStep, lane);
#pragma unroll
    for (uint32_t n = 0; n < kManySums; ++n) sums[n] += others[n];
  }
}

// What a thread reads: the values of its class of four queries and of 8 keys.
template <KvFormat kFormat>
struct ManyOperands {
  const float4* queries;
  const std::byte* keys;
  uint32_t first[kManyClasses];  // value of the key in a slot, counted from `keys`
  float scale[kManyClasses];     // kQ8

  template <uint32_t kLaneValues>
  __device__ void add_lane(float (&sums)[kManySums], uint32_t lane) const {
#pragma unroll
    for (uint32_t n = 0; n < kManySums; ++n) sums[n] = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kLaneValues; ++j) {
      const float4 q = queries[lane + 64 * j];
#pragma unroll
      for (uint32_t t = 0; t < kManyClasses; ++t) {
        const float key = kv_value<kFormat>(keys, first[t] + lane + 64 * j, scale[t]);
        sums[4 * t] = fmaf(q.x, key, sums[4 * t]);
        sums[4 * t + 1] = fmaf(q.y, key, sums[4 * t + 1]);
        sums[4 * t + 2] = fmaf(q.z, key, sums[4 * t + 2]);
        sums[4 * t + 3] = fmaf(q.w, key, sums[4 * t + 3]);
      }
    }
  }
};

// The last steps of the tree. Slot t of thread c has key t ^ c: in every step a thread keeps the first half
// of its slots and gets the same keys from its partner's second half. In the end it has key c in slot 0.
template <uint32_t kStep = kManyClasses / 2>
__device__ inline void add_classes(float (&sums)[kManySums]) {
#pragma unroll
  for (uint32_t n = 0; n < kStep * kManyQueries; ++n)
    sums[n] += __shfl_xor_sync(kAllLanes, sums[n + kStep * kManyQueries], kStep);
  if constexpr (kStep > 1) add_classes<kStep / 2>(sums);
}

// Queries as (quads of heads, d, 4); where heads are missing the last one is repeated.
__device__ inline void bring_query_quads(const float* queries, uint32_t heads, uint32_t dim, float4* to) {
  const uint32_t quads = (heads + kManyQueries - 1) / kManyQueries;
  for (uint32_t at = threadIdx.x; at < quads * dim; at += blockDim.x) {
    const uint32_t head = at / dim * kManyQueries, i = at % dim;
    const auto value = [&](uint32_t h) { return queries[uint64_t{min(head + h, heads - 1)} * 2 * dim + i]; };
    to[at] = {value(0), value(1), value(2), value(3)};
  }
}

// Grid: (tiles of tokens, kv heads and splits of their heads, rows). d = 64 * kLaneValues.
template <KvFormat kFormat, uint32_t kLaneValues>
__global__ void __launch_bounds__(kManyHeads / kManyQueries * kWarp, kManyBlocks)
    attention_scores_many_kernel(AttentionArgs args, ScoreTile tile) {
  constexpr uint32_t kDim = 64 * kLaneValues, kKeyBytes = many_key_bytes<kFormat>(kDim);
  static_assert(kManyKeys == kWarp && kWarp == 4 * kManyClasses);
  const uint32_t row = tile.first_row + blockIdx.z, lane = lane_index();
  const RowInfo info = args.window.rows[row];
  const Attended attended = attended_by(args, row, info.position);
  const uint32_t begin = blockIdx.x * tile.tile_tokens, end = min(begin + tile.tile_tokens, attended.count);
  if (begin >= attended.count) return;  // the whole block
  const HeadSplit split = head_split(args.shape, blockIdx.y, kManyHeads);
  const KvPlace place = kv_place(args, true, info.sequence, split.kv);
  float4* queries = dynamic_shared<float4>();
  auto* keys = reinterpret_cast<std::byte*>(queries + blockDim.x / kWarp * kDim);

  const auto token_of_lane = [&](uint32_t at) { return attended.token(min(at + lane, end - 1)); };
  uint32_t token = token_of_lane(begin);
  bring_query_quads(args.q.data + row * args.q.stride + uint64_t{split.first} * 2 * kDim, split.count, kDim,
                    queries);

  // The warp's four heads; the last warps of a short split only copy.
  const uint32_t first_head = warp_index() * kManyQueries;
  const uint32_t heads = first_head < split.count ? min(kManyQueries, split.count - first_head) : 0;
  const uint32_t thread_class = lane % kManyClasses, group = lane / kManyClasses;
  const uint32_t my_key = 4 * thread_class + group;  // in slot 0
  float* scratch = args.scratch + blockIdx.z * tile.row_floats;
  float* scores = scratch + uint64_t{split.first + first_head} * tile.score_stride + my_key;
  const float factor = 1.0f / sqrtf(static_cast<float>(kDim));
  uint32_t best[kManyQueries] = {};
#pragma unroll 1
  for (uint32_t at = begin; at < end; at += kManyKeys) {
    if constexpr (kFormat == KvFormat::kQ8) {
      if (warp_index() == 0)
        *scale_of_key<kDim>(keys, lane) = place.scales[uint64_t{token} * args.shape.kv_heads];
    }
    for (uint32_t k = warp_index(); k < kManyKeys; k += blockDim.x / kWarp) {
      const uint64_t of_key = __shfl_sync(kAllLanes, token, static_cast<int>(k));
      const std::byte* from =
          place.values + (of_key * place.token_stride + place.first) * kv_value_bytes(kFormat);
#pragma unroll
      for (uint32_t byte = lane * 16; byte < kDim * kv_value_bytes(kFormat); byte += kWarp * 16)
        copy16_async(keys + k * kKeyBytes + byte, from + byte);
    }
    copies_commit();
    token = token_of_lane(at + kManyKeys);
    copies_wait<0>();
    __syncthreads();
    if (heads > 0) {  // the whole warp
      ManyOperands<kFormat> operands = {
          .queries = queries + warp_index() * kDim + thread_class, .keys = keys, .first = {}, .scale = {}};
#pragma unroll
      for (uint32_t t = 0; t < kManyClasses; ++t) {
        const uint32_t key = 4 * (t ^ thread_class) + group;
        operands.first[t] = key * (kKeyBytes / kv_value_bytes(kFormat)) + thread_class;
        if constexpr (kFormat == KvFormat::kQ8) operands.scale[t] = *scale_of_key<kDim>(keys, key);
      }
      float sums[kManySums];
      sum_lanes<kManyClasses>(sums, 0, [&](float(&of_lane)[kManySums], uint32_t l) {
        operands.template add_lane<kLaneValues>(of_lane, l);
      });
      add_classes(sums);
      if (at + my_key < end) {
#pragma unroll
        for (uint32_t h = 0; h < kManyQueries; ++h) {
          if (h >= heads) continue;
          const float score = sums[h] * factor;
          scores[uint64_t{h} * tile.score_stride + at] = score;
          best[h] = max(best[h], ordered_bits(score));
        }
      }
    }
    __syncthreads();  // before the next keys take their place
  }

  auto* maxima = reinterpret_cast<uint32_t*>(scratch + uint64_t{args.shape.heads} * tile.score_stride);
#pragma unroll
  for (uint32_t h = 0; h < kManyQueries; ++h) {
    for (uint32_t s = kWarp / 2; s > 0; s /= 2)
      best[h] = max(best[h], __shfl_xor_sync(kAllLanes, best[h], s));
    if (lane == 0 && h < heads)
      maxima[uint64_t{split.first + first_head + h} * tile.tiles_max + blockIdx.x] = best[h];
  }
}

}  // namespace strata::gpu_worker::cuda
