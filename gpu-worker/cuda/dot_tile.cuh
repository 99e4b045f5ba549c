#pragma once
// 32 dot products at once by a warp, 8 keys by 4 queries, each in the 64 lanes of docs/numerics.md.

#include "gpu-worker/cuda/device_code.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kTileKeys = 8;
inline constexpr uint32_t kTileQueries = 4;

// The trees of 32 sums side by side: v[n] is this thread's part (lanes l and l + 32 added) of sum n. In each
// step a thread passes on those sums that its partner keeps, so a sum costs one shuffle instead of
// five. Lane n gets sum n.
template <uint32_t kStep = kWarp / 2>
__device__ inline float totals_of_lanes(float (&v)[kWarp]) {
  const bool upper = (lane_index() & kStep) != 0;
#pragma unroll
  for (uint32_t n = 0; n < kStep; ++n) {
    const float kept = upper ? v[n + kStep] : v[n], passed = upper ? v[n] : v[n + kStep];
    v[n] = kept + __shfl_xor_sync(kAllLanes, passed, kStep);
  }
  if constexpr (kStep > 1) {
    return totals_of_lanes<kStep / 2>(v);
  } else {
    return v[0];
  }
}

// Lane n gets key n / 4 . query n % 4. key(t, i) and query(h, i): value i of key t and of query h.
template <class Key, class Query>
__device__ inline float dot_tile(uint32_t dim, Key key, Query query) {
  float low[kWarp], high[kWarp];
#pragma unroll
  for (uint32_t n = 0; n < kWarp; ++n) low[n] = high[n] = 0.0f;
  const auto feed = [&](float(&lanes)[kWarp], const float(&keys)[kTileKeys], uint32_t i) {
#pragma unroll
    for (uint32_t h = 0; h < kTileQueries; ++h) {
      const float q = query(h, i);
#pragma unroll
      for (uint32_t t = 0; t < kTileKeys; ++t) {
        const uint32_t n = t * kTileQueries + h;
        lanes[n] = fmaf(q, keys[t], lanes[n]);
      }
    }
  };
  // Keys come from far away: those of the next 64 values are asked for as soon as there is room for them.
  float first[kTileKeys] = {}, second[kTileKeys] = {};
  const auto fetch = [&](float(&keys)[kTileKeys], uint32_t i) {
    if (i >= dim) return;
#pragma unroll
    for (uint32_t t = 0; t < kTileKeys; ++t) keys[t] = key(t, i);
  };
  uint32_t i = lane_index();
  fetch(first, i);
  fetch(second, i + kWarp);
  for (; i < dim; i += 2 * kWarp) {
    feed(low, first, i);
    fetch(first, i + 2 * kWarp);
    if (i + kWarp >= dim) break;
    feed(high, second, i + kWarp);
    fetch(second, i + 3 * kWarp);
  }
  __syncwarp();
#pragma unroll
  for (uint32_t n = 0; n < kWarp; ++n) low[n] += high[n];
  return totals_of_lanes(low);
}

}  // namespace strata::gpu_worker::cuda
