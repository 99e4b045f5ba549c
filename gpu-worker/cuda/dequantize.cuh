#pragma once
// Weights of any type as floats, 32 at a time by one thread: what quant::dequantize_row gives.

#include "gpu-worker/cuda/formats.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kUnitValues = 32;

// Where value i of a unit stands among its 32 floats: in groups of four whose order depends on the unit, so
// that threads which write neighbouring units meet different banks of shared memory. 0 leaves the order.
__device__ inline uint32_t swizzled(uint32_t i, uint32_t swizzle) { return i ^ (swizzle % 8 * 4); }

template <class F>
__device__ inline void dequantize_unit_of(const uint8_t* row, uint32_t unit, uint32_t count, float* to,
                                          uint32_t swizzle) {
  if constexpr (requires { F::kValueBytes; }) {
    const uint8_t* first = row + uint64_t{unit} * kUnitValues * F::kValueBytes;
    for (uint32_t i = 0; i < kUnitValues; ++i) {
      if (i < count) to[swizzled(i, swizzle)] = F::one(first + i * F::kValueBytes);
    }
  } else {
    const uint8_t* block = row + uint64_t{unit / F::kUnits} * F::kBlockBytes;
    const int k = static_cast<int>(unit % F::kUnits);
    uint32_t w[8];
    load_weights<F>(block, k, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto value = [&](int byte) {
        return dequantized<F>(block, k, 4 * i + byte, static_cast<int8_t>(w[i] >> (8 * byte)));
      };
      *reinterpret_cast<float4*>(to + swizzled(4 * i, swizzle)) = {value(0), value(1), value(2), value(3)};
    }
  }
}

template <class... Lists>
struct UnitReader;
template <class... Floats, class... Quantized>
struct UnitReader<FormatList<Floats...>, FormatList<Quantized...>> {
  __device__ static void read(TensorType type, const uint8_t* row, uint32_t unit, uint32_t count, float* to,
                              uint32_t swizzle) {
    ((type == Floats::kType && (dequantize_unit_of<Floats>(row, unit, count, to, swizzle), true)) || ...) ||
        ((type == Quantized::kType && (dequantize_unit_of<Quantized>(row, unit, count, to, swizzle), true)) ||
         ...);
  }
};

// Values 32 unit .. of a row, to `to` (32 floats, aligned to 16). count: how many of the 32 there are, fewer
// only for float types.
__device__ inline void dequantize_unit(TensorType type, const uint8_t* row, uint32_t unit, uint32_t count,
                                       float* to, uint32_t swizzle) {
  UnitReader<FloatFormats, QuantizedFormats>::read(type, row, unit, count, to, swizzle);
}

}  // namespace strata::gpu_worker::cuda
