#pragma once
// Second launch of attention.cu for windows of many rows: work per load counts. A lane owns kDims values of
// kHeads heads, so a value of the cache is loaded once and used by all heads that share it, 8 tokens
// after it was asked for.

#include <type_traits>

#include "gpu-worker/cuda/attention_parts.cuh"
#include "gpu-worker/cuda/kv_format.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kLongWarps = 4;
inline constexpr uint32_t kLongBlocks =
    4;  // of a processor: an H200 has all of 256 rows and two kv heads at once
inline constexpr uint32_t kLongTile =
    128;  // tokens whose weights are in shared memory, and as many that are being made

template <uint32_t kHeads>
struct alignas(16) LongShared {
  float weights[2][kHeads][kLongTile];
  uint32_t first[2][kLongTile];  // where the token's values begin, counted in words of CachedValues
  float scales[2][kLongTile];    // kQ8
  float lanes[kHeads][kSumLanes];
  float largest[kHeads];
};

// kDims values as the cache has them: what is loaded ahead becomes floats only when it is needed, or the
// conversion would wait for the load.
template <KvFormat kFormat, uint32_t kDims>
struct CachedValues {
  template <class Two, class One>
  using Either = std::conditional_t<kDims == 2, Two, One>;
  using Word =
      std::conditional_t<kFormat == KvFormat::kF32, Either<float2, float>,
                         std::conditional_t<kFormat == KvFormat::kF16, Either<unsigned int, unsigned short>,
                                            Either<unsigned short, int8_t>>>;
  Word word;

  __device__ float2 values(float scale) const {
    const auto* bytes = reinterpret_cast<const std::byte*>(&word);
    if constexpr (kDims == 2) return kv_pair<kFormat>(bytes, 0, scale);
    return {kv_value<kFormat>(bytes, 0, scale), 0.0f};
  }
};

// Grid: (slices of 4 * 32 * kDims values, kv heads and splits, rows).
template <KvFormat kFormat, uint32_t kHeads, uint32_t kDims>
__global__ void __launch_bounds__(kLongWarps* kWarp, kLongBlocks)
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
    float score[kHeads / 2][2];  // all on their way before one is waited for
#pragma unroll
    for (uint32_t m = 0; m < kHeads / 2; ++m) {
      const uint32_t h = min(2 * m + thread / kSumLanes, split.count - 1);
#pragma unroll
      for (uint32_t n = 0; n < 2; ++n) {
        const uint32_t at = min(base + thread % kSumLanes + n * kSumLanes, attended.count - 1);
        score[m][n] = scores[uint64_t{h} * tile.score_stride + at];
      }
    }
    shared.first[buffer][thread] = (token * place.token_stride + place.first) / kDims;
    if constexpr (kFormat == KvFormat::kQ8)
      shared.scales[buffer][thread] = __ldg(place.scales + uint64_t{token} * args.shape.kv_heads);
#pragma unroll
    for (uint32_t m = 0; m < kHeads / 2; ++m) {
      const uint32_t h = 2 * m + thread / kSumLanes;
      const float largest = shared.largest[min(h, split.count - 1)];
#pragma unroll
      for (uint32_t n = 0; n < 2; ++n) {
        const uint32_t at = thread % kSumLanes + n * kSumLanes;
        const float weight = exp_value(score[m][n] - largest);
        shared.weights[buffer][h][at] = weight;
        if (base + at < attended.count) sums[m] += weight;
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
  using Cached = CachedValues<kFormat, kDims>;
  const auto* words = reinterpret_cast<const typename Cached::Word*>(place.values) + my_first / kDims;
  const auto fetch = [&](uint32_t t, uint32_t buffer, Cached(&next)[4]) {
    const uint4 first = *reinterpret_cast<const uint4*>(&shared.first[buffer][t]);
    next[0].word = words[first.x];
    next[1].word = words[first.y];
    next[2].word = words[first.z];
    next[3].word = words[first.w];
  };
  const auto add_four = [&](uint32_t t, uint32_t buffer, const Cached(&cached)[4]) {
    float4 scale = {};
    if constexpr (kFormat == KvFormat::kQ8)
      scale = *reinterpret_cast<const float4*>(&shared.scales[buffer][t]);
    const float2 values[4] = {cached[0].values(scale.x), cached[1].values(scale.y), cached[2].values(scale.z),
                              cached[3].values(scale.w)};
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) {
      const float4 weights = *reinterpret_cast<const float4*>(&shared.weights[buffer][h][t]);
      add(h, weights.x, values[0]);
      add(h, weights.y, values[1]);
      add(h, weights.z, values[2]);
      add(h, weights.w, values[3]);
    }
  };
  const auto add_one = [&](uint32_t t, uint32_t buffer, const Cached& cached) {
    const float2 value = cached.values(kFormat == KvFormat::kQ8 ? shared.scales[buffer][t] : 0.0f);
#pragma unroll
    for (uint32_t h = 0; h < kHeads; ++h) add(h, shared.weights[buffer][h][t], value);
  };
  // next: the first 8 tokens. `first` is valid in the whole tile, also behind the last token.
  const auto add_tile = [&](uint32_t count, uint32_t buffer, Cached(&next)[2][4]) {
    uint32_t t = 0;
#pragma unroll 1
    for (; t + 8 <= count; t += 8) {
      const uint32_t ahead = min(t + 8, kLongTile - 8);  // at the end what has just been used, for nothing
#pragma unroll
      for (uint32_t n = 0; n < 2; ++n) {
        const Cached now[4] = {next[n][0], next[n][1], next[n][2], next[n][3]};
        fetch(ahead + 4 * n, buffer, next[n]);
        add_four(t + 4 * n, buffer, now);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      if (t + i < count) add_one(t + i, buffer, next[i / 4][i % 4]);
    }
  };

  make_weights(0, 0);
  __syncthreads();
  for (uint32_t base = 0, buffer = 0; base < attended.count; base += kLongTile, buffer ^= 1) {
    Cached next[2][4];
    fetch(0, buffer, next[0]);
    fetch(4, buffer, next[1]);
    if (base + kLongTile < attended.count) make_weights(base + kLongTile, buffer ^ 1);
    add_tile(min(kLongTile, attended.count - base), buffer, next);
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
