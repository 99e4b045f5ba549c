#pragma once
// The parts of a row's routed experts and of the shared expert summed up, and added to the residual streams.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

// Reference: expert::combine_parts, add_scaled_f32 with sigmoid_f32(shared gate), StreamMixer::add; same
// bits:
//   y = by fma from 0 over k ascending: weight_k * part_k;   y = fma(sigmoid(shared_gate), shared, y);   X[c]
//   = fma(inject[c], y, X[c])
// One launch. A thread takes one column of one row (four, if there are many rows) and asks for all its parts
// at once, so that parts in host memory (PCIe) are read side by side. Moves 4*(k + 1 + 2*C)*H bytes per row.
struct CombineArgs {
  uint32_t rows = 0;
  uint32_t hidden = 0;                 // H
  uint32_t top_k = 0;                  // k
  uint32_t streams = 0;                // C; 0: no streams are written
  const float* weights = nullptr;      // (rows, k)
  const float* parts = nullptr;        // (rows, k, H): parts computed on this device
  const uint64_t* remote = nullptr;    // null, or (rows, k): 0 for those, else the device-visible address of
                                       // the pair's part (H floats)
  FloatRows shared;                    // (rows, H); data null: there is no shared expert
  const float* shared_gate = nullptr;  // rows, shared_gate_stride floats apart; before the sigmoid
  uint64_t shared_gate_stride = 1;
  const float* inject = nullptr;  // (rows, C), as the stream read left it (2 * sigmoid applied)
  float* x = nullptr;             // (rows, C, H) in and out
  float* y = nullptr;             // null, or out (rows, H)
};
void combine(const CombineArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
