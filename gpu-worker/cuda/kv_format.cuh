#pragma once
// The formats of cached keys and values (kv_cache.h): reading values, and writing a head by one warp.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/kv_cache.h"
#include "gpu-worker/cuda/math.cuh"

namespace strata::gpu_worker::cuda {

// Value i of an array of the format, in any memory; scale counts for kQ8 only.
template <KvFormat kFormat>
__device__ inline float kv_value(const std::byte* values, uint32_t i, float scale) {
  if constexpr (kFormat == KvFormat::kF32) return reinterpret_cast<const float*>(values)[i];
  if constexpr (kFormat == KvFormat::kF16)
    return __half2float(__ushort_as_half(reinterpret_cast<const unsigned short*>(values)[i]));
  if constexpr (kFormat == KvFormat::kQ8)
    return static_cast<float>(reinterpret_cast<const int8_t*>(values)[i]) * scale;
}

// Values i and i + 1; i is even.
template <KvFormat kFormat>
__device__ inline float2 kv_pair(const std::byte* values, uint32_t i, float scale) {
  if constexpr (kFormat == KvFormat::kF32) return reinterpret_cast<const float2*>(values)[i / 2];
  if constexpr (kFormat == KvFormat::kF16) {
    const uint32_t both = reinterpret_cast<const unsigned int*>(values)[i / 2];
    return {__half2float(__ushort_as_half(static_cast<unsigned short>(both))),
            __half2float(__ushort_as_half(static_cast<unsigned short>(both >> 16)))};
  }
  if constexpr (kFormat == KvFormat::kQ8) {
    const uint32_t both = reinterpret_cast<const unsigned short*>(values)[i / 2];
    return {static_cast<float>(static_cast<int8_t>(both)) * scale,
            static_cast<float>(static_cast<int8_t>(both >> 8)) * scale};
  }
}

// One warp writes head[0..dim) as values first.. of the array; kQ8 also its scale. All lanes call it.
__device__ inline void store_kv_head(KvFormat format, const float* head, uint32_t dim, std::byte* values,
                                     uint64_t first, float* scale) {
  const uint32_t lane = lane_index();
  if (format == KvFormat::kF32) {
    for (uint32_t i = lane; i < dim; i += kWarp) reinterpret_cast<float*>(values)[first + i] = head[i];
    return;
  }
  if (format == KvFormat::kF16) {
    auto* to = reinterpret_cast<unsigned short*>(values) + first;
    for (uint32_t i = lane; i < dim; i += kWarp) to[i] = __half_as_ushort(__float2half_rn(head[i]));
    return;
  }
  uint32_t largest = 0;  // magnitudes compare like their bits
  for (uint32_t i = lane; i < dim; i += kWarp) largest = max(largest, bits_of_float(head[i]) & 0x7fffffffu);
  for (uint32_t s = kWarp / 2; s > 0; s /= 2) largest = max(largest, __shfl_xor_sync(kAllLanes, largest, s));
  const float amax = float_of_bits(largest);
  const bool fault = largest >= 0x7f800000u;
  const bool none = fault || amax < 0x1p-100f;
  const float inverse = none ? 0.0f : 127.0f / amax;
  auto* to = reinterpret_cast<int8_t*>(values) + first;
  for (uint32_t i = lane; i < dim; i += kWarp)
    to[i] = none ? int8_t{0} : static_cast<int8_t>(nearest_integer(head[i] * inverse));
  if (lane == 0) *scale = fault ? __builtin_nanf("") : none ? 0.0f : amax / 127.0f;
}

}  // namespace strata::gpu_worker::cuda
