#pragma once
// Second launch of attention.cu for windows of many rows: work per load counts. A lane owns kDims values of
// kHeads heads, so a value of the cache is loaded once and used by all heads that share it; many warps hide
// the loads.

#include "gpu-worker/cuda/attention_parts.cuh"
#include "gpu-worker/cuda/kv_format.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kLongWarps = 4;
inline constexpr uint32_t kLongTile =
    128;  // tokens whose weights are in shared memory, and as many that are being made

template <uint32_t kHeads>
struct alignas(16) LongShared {
  float weights[2][kHeads][kLongTile];
  uint32_t first[2][kLongTile];  // where the token's values begin
  float scales[2][kLongTile];    // kQ8
  float lanes[kHeads][kSumLanes];
  float largest[kHeads];
};

template <KvFormat kFormat, uint32_t kDims>
__device__ inline float2 cached_values(const KvPlace& place, uint32_t i, float scale) {
  if constexpr (kDims == 2) return kv_pair<kFormat>(place.values, i, scale);
  return {kv_value<kFormat>(place.values, i, scale), 0.0f};
}

// Grid: (slices of 4 * 32 * kDims values, kv heads and splits, rows).
template <KvFormat kFormat, uint32_t kHeads, uint32_t kDims>
__global__ void __launch_bounds__(kLongWarps* kWarp)
    attention_values_long_kernel(AttentionArgs args, ScoreTile tile) {
  static_assert(kHeads % 2 == 0 && kLongWarps * kWarp == 2 * kSumLanes && kLongWarps * kWarp == kLongTile);
  __shared__ LongShared<kHeads> shared;
  const uint32_t row = tile.first_row + blockIdx.z, dim = args.shape.head_dim, thread = threadIdx.x;
  const RowInfo info = args.window.rows[row];
  const Attended attended = attended_by(args, row, info.position);
  const HeadSplit split = head_split(args.shape, blockIdx.y, kHeads);
  const KvPlace place = kv_place(args, false, info.sequence, split.kv);
  const float* row_scratch = args.scratch + blockIdx.z * tile.row_floats;
  const float* scores = row_scratch + uint64_t{split.first} * tile.score_stride;
  for (uint32_t h = warp_index(); h < split.count; h += kLongWarps) {
    const float largest = largest_score(row_scratch, args.shape, tile, split.first + h, attended.count);
    if (lane_index() == 0) shared.largest[h] = largest;
  }
  __syncthreads();

  // Lane l of the sums is fed by thread l or l + 64, always the same one, tokens ascending.
  float sums[kHeads / 2] = {};
  const auto make_weights = [&](uint32_t base, uint32_t buffer) {
    const uint32_t token = attended.token(min(base + thread, attended.count - 1));
    shared.first[buffer][thread] = token * place.token_stride + place.first;
    if constexpr (kFormat == KvFormat::kQ8)
      shared.scales[buffer][thread] = __ldg(place.scales + uint64_t{token} * args.shape.kv_heads);
#pragma unroll
    for (uint32_t m = 0; m < kHeads / 2; ++m) {
      const uint32_t h = 2 * m + thread / kSumLanes;
      if (h >= split.count) continue;
#pragma unroll
      for (uint32_t at = thread % kSumLanes; at < kLongTile; at += kSumLanes) {
        if (base + at >= attended.count) continue;
        const float weight =
            exp_value(scores[uint64_t{h} * tile.score_stride + base + at] - shared.largest[h]);
        shared.weights[buffer][h][at] = weight;
        sums[m] += weight;
      }
    }
  };

  const uint32_t part = (blockIdx.x * kLongWarps + warp_index()) * kDims;  // of 32 values
  const uint32_t my_first = min(part * kWarp + lane_index() * kDims, dim - kDims);
  float out[kHeads][kDims] = {};
  const auto add = [&](uint32_t h, float weight, const float2& value) {
    out[h][0] = fmaf(weight, value.x, out[h][0]);
    if constexpr (kDims == 2) out[h][1] = fmaf(weight, value.y, out[h][1]);
  };
  const auto add_tile = [&](uint32_t count, uint32_t buffer) {
    const auto fetch = [&](uint32_t t, float2(&values)[4]) {
      const uint4 first = *reinterpret_cast<const uint4*>(&shared.first[buffer][t]);
      float4 scale = {};
      if constexpr (kFormat == KvFormat::kQ8)
        scale = *reinterpret_cast<const float4*>(&shared.scales[buffer][t]);
      values[0] = cached_values<kFormat, kDims>(place, first.x + my_first, scale.x);
      values[1] = cached_values<kFormat, kDims>(place, first.y + my_first, scale.y);
      values[2] = cached_values<kFormat, kDims>(place, first.z + my_first, scale.z);
      values[3] = cached_values<kFormat, kDims>(place, first.w + my_first, scale.w);
    };
    float2 next[4];
    fetch(0, next);
    uint32_t t = 0;
#pragma unroll 2
    for (; t + 4 <= count; t += 4) {
      const float2 values[4] = {next[0], next[1], next[2], next[3]};
      if (t + 4 < count) fetch(t + 4, next);
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h) {
        const float4 weights = *reinterpret_cast<const float4*>(&shared.weights[buffer][h][t]);
        add(h, weights.x, values[0]);
        add(h, weights.y, values[1]);
        add(h, weights.z, values[2]);
        add(h, weights.w, values[3]);
      }
    }
    for (uint32_t i = 0; t + i < count; ++i) {
#pragma unroll
      for (uint32_t h = 0; h < kHeads; ++h)
        add(h, shared.weights[buffer][h][t + i], i == 0 ? next[0] : i == 1 ? next[1] : next[2]);
    }
  };

  make_weights(0, 0);
  __syncthreads();
  for (uint32_t base = 0, buffer = 0; base < attended.count; base += kLongTile, buffer ^= 1) {
    if (base + kLongTile < attended.count) make_weights(base + kLongTile, buffer ^ 1);
    add_tile(min(kLongTile, attended.count - base), buffer);
    __syncthreads();
  }

#pragma unroll
  for (uint32_t m = 0; m < kHeads / 2; ++m)
    shared.lanes[2 * m + thread / kSumLanes][thread % kSumLanes] = sums[m];
  __syncthreads();
#pragma unroll
  for (uint32_t h = 0; h < kHeads; ++h) {
    if (h >= split.count || part * kWarp >= dim) continue;  // the whole warp
    const float inverse =
        1.0f / total_of_lanes(shared.lanes[h][lane_index()], shared.lanes[h][lane_index() + kWarp]);
    if constexpr (kDims == 1) {
      finish_value(args, row, split.first + h, part, part * kWarp + lane_index() < dim, out[h][0], inverse);
    } else {
#pragma unroll
      for (uint32_t pair_part = 0; pair_part < 2; ++pair_part) {  // lane i gets value 32 * pair_part + i
        const int from = static_cast<int>(pair_part * (kWarp / 2) + lane_index() / 2);
        const float even = __shfl_sync(kAllLanes, out[h][0], from),
                    odd = __shfl_sync(kAllLanes, out[h][1], from);
        finish_value(args, row, split.first + h, part + pair_part, true, lane_index() % 2 == 0 ? even : odd,
                     inverse);
      }
    }
  }
}

}  // namespace strata::gpu_worker::cuda
