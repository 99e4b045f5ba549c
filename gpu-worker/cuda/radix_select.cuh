#pragma once
// The largest of many numbers by one block, exactly and in a fixed order.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/math.cuh"

namespace strata::gpu_worker::cuda {

// A float's place in the order of numbers as an unsigned integer; both zeros are one, NaN and -infinity are
// 0, before all others.
__device__ inline uint32_t ordered_bits(float value) {
  if (!(value > -__builtin_inff())) return 0;
  const uint32_t bits = bits_of_float(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float float_of_ordered(uint32_t bits) {
  return float_of_bits((bits & 0x80000000u) != 0 ? bits & 0x7fffffffu : ~bits);
}

inline constexpr uint32_t kRadixBins = 2048;
inline constexpr uint32_t kKeysAtOnce = 8;  // of a thread: asked for before the first is looked at

// In shared memory, one per block.
struct RadixShared {
  uint32_t bins[kRadixBins];
  uint32_t totals[2][kWarp];  // of the warps
  uint32_t digit, before, in_bin;
};

// Sum of `value` over the block's threads before this one. A barrier of the block; `totals` may be used again
// after another one.
__device__ inline uint32_t sum_before(uint32_t value, uint32_t* totals) {
  uint32_t sum = value;
  for (uint32_t s = 1; s < kWarp; s *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, s);
    sum += lane_index() >= s ? other : 0;
  }
  if (lane_index() == kWarp - 1) totals[warp_index()] = sum;
  __syncthreads();
  uint32_t before = 0;
  for (uint32_t w = 0; w < warp_index(); ++w) before += totals[w];
  return before + sum - value;
}

// Counts a digit per active lane. The digit of the first active lane is counted once for all that share it:
// equal keys in masses (scores of zero) would queue up otherwise.
__device__ inline void count_digit(uint32_t* bins, bool active, uint32_t digit) {
  const uint32_t lanes = __ballot_sync(kAllLanes, active);
  if (lanes == 0) return;
  const int first = __ffs(static_cast<int>(lanes)) - 1;
  const uint32_t common = __shfl_sync(kAllLanes, digit, first);
  const uint32_t sharing = __ballot_sync(kAllLanes, active && digit == common);
  if (static_cast<int>(lane_index()) == first) {
    atomicAdd(&bins[common], static_cast<uint32_t>(__popc(sharing)));
  } else if (active && digit != common) {
    atomicAdd(&bins[digit], 1u);
  }
}

// The `count` (1..n) items of 0..n-1 with the largest keys, equal keys: the lower items. key(i) gives a
// uint32_t; emit(place, i) is called once for each, by any thread, place 0..count-1 in ascending order of i.
// All threads of the block call it with the same n and count, whole warps, 1024 threads at most. Begins and
// ends with a barrier.
template <class Key, class Emit>
__device__ void select_largest(uint32_t n, uint32_t count, RadixShared& shared, Key key, Emit emit) {
  const uint32_t threads = blockDim.x, thread = threadIdx.x;
  uint32_t prefix = 0, mask = 0,
           wanted = count;  // `wanted` items are to be taken of those that share the prefix
  for (uint32_t pass = 0; pass < 3; ++pass) {
    const uint32_t shift = pass == 0 ? 21 : pass == 1 ? 10 : 0;
    const uint32_t digits = pass == 2 ? 1023 : 2047;
    __syncthreads();
    for (uint32_t b = thread; b < kRadixBins; b += threads) shared.bins[b] = 0;
    __syncthreads();
    for (uint32_t base = 0; base < n; base += kKeysAtOnce * threads) {
      uint32_t keys[kKeysAtOnce];
#pragma unroll
      for (uint32_t u = 0; u < kKeysAtOnce; ++u) {
        const uint32_t i = base + u * threads + thread;
        keys[u] = i < n ? key(i) : 0;
      }
#pragma unroll
      for (uint32_t u = 0; u < kKeysAtOnce; ++u) {
        const bool active = base + u * threads + thread < n && (keys[u] & mask) == prefix;
        count_digit(shared.bins, active, keys[u] >> shift & digits);
      }
    }
    __syncthreads();
    const uint32_t per_thread = (kRadixBins + threads - 1) / threads;
    uint32_t sum = 0;
    for (uint32_t b = thread * per_thread; b < min((thread + 1) * per_thread, kRadixBins); ++b)
      sum += shared.bins[kRadixBins - 1 - b];
    uint32_t before = sum_before(sum, shared.totals[0]);
    if (before < wanted && wanted <= before + sum) {
      uint32_t bin = kRadixBins - 1 - thread * per_thread;
      while (before + shared.bins[bin] < wanted) before += shared.bins[bin--];
      shared.digit = bin;
      shared.before = before;
      shared.in_bin = shared.bins[bin];
    }
    __syncthreads();
    prefix |= shared.digit << shift;
    mask |= digits << shift;
    wanted -= shared.before;
    if (shared.in_bin == wanted) break;  // the prefix decides
  }

  // Each warp takes a stretch of the items: first it counts, then it knows where its own go.
  const uint32_t warps = threads / kWarp;
  const uint32_t stretch = (n + threads - 1) / threads * kWarp;
  const uint32_t begin = min(warp_index() * stretch, n), end = min(begin + stretch, n);
  const auto visit = [&](auto visitor) {
    for (uint32_t base = begin; base < end; base += kKeysAtOnce * kWarp) {
      uint32_t keys[kKeysAtOnce];
#pragma unroll
      for (uint32_t u = 0; u < kKeysAtOnce; ++u) {
        const uint32_t i = base + u * kWarp + lane_index();
        keys[u] = (i < end ? key(i) : 0) & mask;
      }
#pragma unroll
      for (uint32_t u = 0; u < kKeysAtOnce; ++u) {
        const uint32_t i = base + u * kWarp + lane_index();
        visitor(i, __ballot_sync(kAllLanes, i < end && keys[u] > prefix),
                __ballot_sync(kAllLanes, i < end && keys[u] == prefix));
      }
    }
  };
  uint32_t above = 0, equal = 0;
  visit([&](uint32_t, uint32_t lanes_above, uint32_t lanes_equal) {
    above += static_cast<uint32_t>(__popc(lanes_above));
    equal += static_cast<uint32_t>(__popc(lanes_equal));
  });
  __syncthreads();
  if (lane_index() == 0) {
    shared.totals[0][warp_index()] = above;
    shared.totals[1][warp_index()] = equal;
  }
  __syncthreads();
  above = equal = 0;
  for (uint32_t w = 0; w < warps && w < warp_index(); ++w) {
    above += shared.totals[0][w];
    equal += shared.totals[1][w];
  }
  visit([&](uint32_t i, uint32_t lanes_above, uint32_t lanes_equal) {
    const uint32_t me = 1u << lane_index(), before = me - 1;
    const uint32_t above_before = above + static_cast<uint32_t>(__popc(lanes_above & before));
    const uint32_t equal_before = equal + static_cast<uint32_t>(__popc(lanes_equal & before));
    if ((lanes_above & me) != 0 || ((lanes_equal & me) != 0 && equal_before < wanted))
      emit(above_before + min(equal_before, wanted), i);
    above += static_cast<uint32_t>(__popc(lanes_above));
    equal += static_cast<uint32_t>(__popc(lanes_equal));
  });
  __syncthreads();
}

}  // namespace strata::gpu_worker::cuda
