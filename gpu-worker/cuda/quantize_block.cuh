#pragma once
// The rule by which activations become 8-bit (docs/numerics.md), for kernels that write Q8Rows.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/math.cuh"

namespace strata::gpu_worker::cuda {

// Quantizes block `block` of a stored row: 32 / kValues neighbouring lanes hold its values in their order,
// kValues each; without a row nothing is written. All lanes call it.
template <int kValues>
__device__ inline void quantize_block(const float (&values)[kValues], std::byte* row, uint32_t cols,
                                      uint32_t block) {
  static_assert(kValues == 1 || kValues == 4);
  constexpr uint32_t kLanes = kWarp / kValues;
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const uint32_t magnitude = bits_of_float(values[i]) & 0x7fffffffu;  // they compare like their bits
    largest = magnitude > largest ? magnitude : largest;
  }
  for (uint32_t s = kLanes / 2; s > 0; s /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, s);
    largest = other > largest ? other : largest;
  }
  const float amax = float_of_bits(largest);
  const bool fault = largest >= 0x7f800000u;
  const bool none = fault || amax < 0x1p-100f;
  const float inverse = 127.0f / amax;
  int32_t q[kValues], sum = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    q[i] = none ? 0 : nearest_integer(values[i] * inverse);
    sum += q[i];
  }
  for (uint32_t s = kLanes / 2; s > 0; s /= 2) sum += __shfl_xor_sync(kAllLanes, sum, s);
  if (row == nullptr) return;

  const uint32_t lane = lane_index() % kLanes, blocks = cols / kWarp;
  if constexpr (kValues == 1) {
    reinterpret_cast<int8_t*>(row)[block * kWarp + lane] = static_cast<int8_t>(q[0]);
  } else {
    reinterpret_cast<uint32_t*>(row)[block * kLanes + lane] =
        (q[0] & 255u) | (q[1] & 255u) << 8 | (q[2] & 255u) << 16 | static_cast<uint32_t>(q[3]) << 24;
  }
  if (lane == 0) {
    float* d = reinterpret_cast<float*>(row + cols);
    d[block] = fault ? __builtin_nanf("") : none ? 0.0f : amax / 127.0f;
    reinterpret_cast<int32_t*>(d + blocks)[block] = sum;
  }
}
// Lane i of the warp holds value 32 * block + i.
__device__ inline void quantize_block(float value, std::byte* row, uint32_t cols, uint32_t block) {
  quantize_block<1>({value}, row, cols, block);
}

}  // namespace strata::gpu_worker::cuda
