#pragma once
// The second half of a stream read: the up product, and the mix of the streams with it.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/stream_mixer.h"

namespace strata::gpu_worker::cuda {

// a[j] = (by fma from 0 over streams c: sigmoid(mask[c, j]) * normed[c, j]) * (1 / C).
struct MixArgs {
  uint32_t streams = 0, hidden = 0;
  float* out = nullptr;  // (rows, H)
  Q8Rows q8 = {};        // data == nullptr: not wanted
};

// The normed streams: as they are, or what they are made of, then with what is pending still to be added to
// the streams.
struct NormedStreams {
  const float* normed = nullptr;  // (rows, C*H), or nullptr and:
  float* streams = nullptr;       // (rows, C*H)
  PendingAdd pending = {};
  const float* scales = nullptr;  // (rows, C) 1 / rms with what is pending
  const float* norm = nullptr;    // (C*H)
};

struct UpAndMixArgs {
  DeviceMatrix up;             // (C*H, R)
  const float* low = nullptr;  // (rows, R)
  NormedStreams inputs;
  MixArgs mix;
  uint32_t rows = 0;
};

// Whether up_and_mix can do it: few rows, a type that has a direct reader, and weights of 32 columns that fit
// a block's shared memory.
bool can_up_and_mix(const DeviceMatrix& up, uint32_t streams, uint32_t rows);
// In one launch.
void up_and_mix(const UpAndMixArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
