#pragma once
// Sums in the order of docs/numerics.md ("64 lanes") by one warp: lanes l and l + 32 live in thread l, so the
// first step of the tree is in the thread and the others are shuffles (an addition's operands may trade
// places). Every thread gets the sum. All threads of the warp call these.

#include "gpu-worker/cuda/device_code.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kSumLanes = 64;

__device__ inline float total_of_lanes(float low, float high) {
  float sum = low + high;
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) sum += __shfl_xor_sync(kAllLanes, sum, s);
  return sum;
}

// Feeds elements 0..count-1 to their lanes: load(i) reads what there is of an element, step(element, lane)
// gives the lane's new value. Several reads are under way before the first is used.
template <class Load, class Step>
__device__ inline float sum_in_lanes(uint32_t count, Load load, Step step) {
  constexpr uint32_t kTurns = 4, kAtOnce = kTurns * kSumLanes;
  float low = 0.0f, high = 0.0f;
  uint32_t i = lane_index();
  for (; i - lane_index() + kAtOnce <= count; i += kAtOnce) {
    decltype(load(i)) lows[kTurns], highs[kTurns];
#pragma unroll
    for (uint32_t k = 0; k < kTurns; ++k) {
      lows[k] = load(i + k * kSumLanes);
      highs[k] = load(i + k * kSumLanes + kWarp);
    }
#pragma unroll
    for (uint32_t k = 0; k < kTurns; ++k) {
      low = step(lows[k], low);
      high = step(highs[k], high);
    }
  }
  for (; i + kWarp < count; i += kSumLanes) {
    low = step(load(i), low);
    high = step(load(i + kWarp), high);
  }
  if (i < count) low = step(load(i), low);
  return total_of_lanes(low, high);
}

__device__ inline float dot_f32(const float* a, const float* b, uint32_t count) {
  return sum_in_lanes(
      count, [&](uint32_t i) { return float2{a[i], b[i]}; },
      [](float2 pair, float lane) { return fmaf(pair.x, pair.y, lane); });
}
__device__ inline float sum_f32(const float* x, uint32_t count) {
  return sum_in_lanes(
      count, [&](uint32_t i) { return x[i]; }, [](float value, float lane) { return lane + value; });
}
__device__ inline float sum_squares_f32(const float* x, uint32_t count) {
  return sum_in_lanes(
      count, [&](uint32_t i) { return x[i]; },
      [](float value, float lane) { return fmaf(value, value, lane); });
}

// The same for kCount (1, 2, 4, 8 or 16) dot products at a time, with lanes 2 t and 2 t + 1 of each in
// thread t. Every step of the tree but the last then halves what a thread still has to add. Gives the sum of
// dot product number `lane_index() * kCount / kWarp`.
template <int kCount>
__device__ inline float total_of_lane_pairs(float (&v)[kCount][2]) {
  const uint32_t lane = lane_index();
  uint32_t mask = kWarp / 2;
#pragma unroll
  for (int count = kCount; count > 1; count /= 2, mask /= 2) {
    const bool upper = (lane & mask) != 0;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        const float keep = upper ? v[i + count / 2][parity] : v[i][parity];
        const float give = upper ? v[i][parity] : v[i + count / 2][parity];
        v[i][parity] = keep + __shfl_xor_sync(kAllLanes, give, mask);
      }
    }
  }
  const bool odd = (lane & mask) != 0;
  const float give = odd ? v[0][0] : v[0][1];
  float sum = (odd ? v[0][1] : v[0][0]) + __shfl_xor_sync(kAllLanes, give, mask);
  for (uint32_t s = mask / 2; s > 0; s /= 2) sum += __shfl_xor_sync(kAllLanes, sum, s);
  return sum + __shfl_xor_sync(kAllLanes, sum, mask);
}

// The rest of the tree for kCount (1, 2 or 4) dot products whose lanes l and l + 32 have been added, one of
// these sums of each in a thread. Gives the total of number `lane_index() * kCount / kWarp`.
template <int kCount>
__device__ inline float total_of_warp(float (&v)[kCount]) {
  uint32_t mask = kWarp / 2;
#pragma unroll
  for (int count = kCount; count > 1; count /= 2, mask /= 2) {
    const bool upper = (lane_index() & mask) != 0;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      const float keep = upper ? v[i + count / 2] : v[i], give = upper ? v[i] : v[i + count / 2];
      v[i] = keep + __shfl_xor_sync(kAllLanes, give, mask);
    }
  }
  float sum = v[0];
  for (; mask > 0; mask /= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
  return sum;
}

// The factor of an RMS norm, 1 / sqrt(mean + eps), and the norm of one value with it.
__device__ inline float rms_scale(float sum_squares, uint32_t count, float eps) {
  return 1.0f / sqrtf(sum_squares / static_cast<float>(count) + eps);
}
__device__ inline float normed(float x, float scale, float g) { return (x * scale) * g; }

}  // namespace strata::gpu_worker::cuda
