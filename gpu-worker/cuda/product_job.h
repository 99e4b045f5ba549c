#pragma once
// One of the products that a launch of products_q8.h or products_f32.h computes.

#include <cstdint>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

// out[row * out_stride + i] = (W x_row)[i] * W's scale, i in [0, matrix.rows).
struct ProductJob {
  DeviceMatrix matrix;
  float* out = nullptr;
  uint64_t out_stride = 0;  // floats
};

// Jobs of one launch: they travel as an argument of the kernel.
inline constexpr uint32_t kProductJobsMax = 8;

}  // namespace strata::gpu_worker::cuda
