#pragma once
// The second half of a stream read: the up product, and the mix of the streams with it.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

// a[j] = (by fma from 0 over streams c: sigmoid(mask[c, j]) * normed[c, j]) * (1 / C).
struct MixArgs {
  const float* normed = nullptr;  // (rows, C*H)
  const float* mask = nullptr;    // (rows, C*H)
  uint32_t streams = 0, hidden = 0;
  float* out = nullptr;  // (rows, H)
  Q8Rows q8 = {};        // data == nullptr: not wanted
};

struct UpAndMixArgs {
  DeviceMatrix up;             // (C*H, R)
  const float* low = nullptr;  // (rows, R)
  MixArgs mix;                 // mask is not used
  uint32_t rows = 0;
};

// Both in one launch: for few rows, a type that has a direct reader, and weights of 32 columns that fit a
// block's shared memory. False, and nothing launched, otherwise.
bool up_and_mix(const UpAndMixArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
