#pragma once
// The rule by which activations become 8-bit (docs/numerics.md), for kernels that write Q8Rows.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/math.cuh"

namespace strata::gpu_worker::cuda {

// Quantizes block `block` of a stored row: lane i of the warp holds value 32 * block + i. All lanes call it.
__device__ inline void quantize_block(float value, std::byte* row, uint32_t cols, uint32_t block) {
  uint32_t largest = bits_of_float(value) & 0x7fffffffu;  // magnitudes compare like their bits
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, s);
    largest = other > largest ? other : largest;
  }
  const float amax = float_of_bits(largest);
  const bool fault = largest >= 0x7f800000u;
  const bool none = fault || amax < 0x1p-100f;
  const int32_t q = none ? 0 : nearest_integer(value * (127.0f / amax));
  int32_t sum = q;
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) sum += __shfl_xor_sync(kAllLanes, sum, s);

  const uint32_t lane = lane_index(), blocks = cols / kWarp;
  reinterpret_cast<int8_t*>(row)[block * kWarp + lane] = static_cast<int8_t>(q);
  if (lane == 0) {
    float* d = reinterpret_cast<float*>(row + cols);
    d[block] = fault ? __builtin_nanf("") : none ? 0.0f : amax / 127.0f;
    reinterpret_cast<int32_t*>(d + blocks)[block] = sum;
  }
}

}  // namespace strata::gpu_worker::cuda
