#pragma once
// The types of the matrices that meet float32 activations in practice are read value by value
// (weight_lanes.cuh). Rows of others are dequantized first (dequantize.cuh); here, two neighbouring values of
// such a stretch, for sums with lanes 2 t and 2 t + 1 in thread t.

#include "gpu-worker/cuda/dequantize.cuh"

namespace strata::gpu_worker::cuda {

__host__ __device__ inline bool has_direct_reader(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16 ||
         type == TensorType::kQ8_0;
}

inline constexpr uint32_t kConverted = kWarp * kUnitValues;  // values that a warp dequantizes at a time

struct SwizzledReader {
  const float* converted;  // unit u swizzled by u
  __device__ float2 pair(uint32_t i) const {
    const uint32_t unit = i / kUnitValues;
    return *reinterpret_cast<const float2*>(converted + unit * kUnitValues + swizzled(i % kUnitValues, unit));
  }
};

}  // namespace strata::gpu_worker::cuda
