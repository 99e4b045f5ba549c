#pragma once
// Two neighbouring weights of a row in shared memory as floats, for sums with lanes 2 t and 2 t + 1 in thread
// t. The types of the matrices that meet float32 activations in practice are read directly; rows of others
// are dequantized first (dequantize.cuh) and read by SwizzledReader.

#include "gpu-worker/cuda/dequantize.cuh"

namespace strata::gpu_worker::cuda {

__host__ __device__ inline bool has_direct_reader(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16 ||
         type == TensorType::kQ8_0;
}

template <class F>
struct FloatReader {
  const uint8_t* row;
  __device__ float one(uint32_t i) const { return F::one(row + i * F::kValueBytes); }
  __device__ float2 pair(uint32_t i) const { return {one(i), one(i + 1)}; }
};

struct Q8Reader {
  const uint8_t* row;
  __device__ float2 pair(uint32_t i) const {
    const uint8_t* block = row + i / kUnitValues * Q8_0::kBlockBytes;
    const float d = __half2float(*reinterpret_cast<const __half*>(block));
    const auto q = static_cast<int16_t>(load_half_word(block + 2 + i % kUnitValues));
    return {d * static_cast<float>(static_cast<int8_t>(q)), d * static_cast<float>(q >> 8)};
  }
  __device__ float one(uint32_t i) const { return pair(i).x; }
};

inline constexpr uint32_t kConverted = kWarp * kUnitValues;  // values that a warp dequantizes at a time

struct SwizzledReader {
  const float* converted;  // unit u swizzled by u
  __device__ float2 pair(uint32_t i) const {
    const uint32_t unit = i / kUnitValues;
    return *reinterpret_cast<const float2*>(converted + unit * kUnitValues + swizzled(i % kUnitValues, unit));
  }
  __device__ float one(uint32_t i) const { return pair(i).x; }
};

}  // namespace strata::gpu_worker::cuda
