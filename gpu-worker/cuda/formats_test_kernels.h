#pragma once
// What formats_test.cc runs on the device.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

// A unit of quant::reference as the kernels see it.
struct TestUnit {
  int w[32];
  float dequantized[32];
  float factor[2];
  int scale[2];
  float minimum_factor;
  int minimum[2];
};
// All units of `blocks` blocks that begin at `data`; false if the type is no quantized one.
bool read_units(TensorType type, const std::byte* data, uint32_t blocks, TestUnit* units,
                cudaStream_t stream);
// `count` values of a float type.
bool read_floats(TensorType type, const std::byte* data, uint32_t count, float* values, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
