#pragma once
// Reading and writing the residual streams, as model::StreamMixer does it (model-qwen4exp section 4).

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/products_f32.h"

namespace strata::gpu_worker::cuda {

struct StreamMixer {            // weights of one read
  const float* norm = nullptr;  // (C*H)
  DeviceMatrix down;            // (R, C*H)
  DeviceMatrix up;              // (C*H, R)
  DeviceMatrix inject;          // (C, C*H); rows == 0 for the final read
  uint32_t streams = 0;         // C
  uint32_t hidden = 0;          // H
  float eps = 0;
};

// What a block gave and what has not been added to the streams yet: X[c] = fma(inject[c], output, X[c]).
struct PendingAdd {
  const float* output = nullptr;  // (rows, H); null: nothing is pending
  const float* inject = nullptr;  // (rows, C) of the read before the block
};

// Memory of a read, contents free before and after.
struct StreamScratch {
  float* normed = nullptr;     // (rows, C*H)
  float* mask = nullptr;       // (rows, C*H)
  float* low = nullptr;        // (rows, R)
  FloatScratch products = {};  // for many rows
};

struct StreamReadArgs {
  StreamMixer mixer;
  PendingAdd pending = {};   // done first, in place
  float* streams = nullptr;  // (rows, C, H)
  StreamScratch scratch;
  float* inject = nullptr;  // out (rows, C), not pending.inject; unused when mixer.inject has no rows
  float* input = nullptr;   // out (rows, H): what the block reads
  Q8Rows input_q8 = {};     // out, the same in 8 bits; data == nullptr: not wanted
  uint32_t rows = 0;
};

// Two launches for one or two rows (add, norm, down and inject; up and mix), three for few rows, more for
// many. Moves the weights once (7.05 MB in Q8_0 for the real shape) beside rows * C*H * 16 bytes.
void read_streams(const StreamReadArgs& args, cudaStream_t stream);

// The pending add alone: before the n-gram layer, and wherever the streams are looked at.
struct StreamAddArgs {
  PendingAdd pending;
  float* streams = nullptr;  // (rows, C, H)
  uint32_t streams_count = 0, hidden = 0, rows = 0;
};
void add_to_streams(const StreamAddArgs& args, cudaStream_t stream);

// to (count, C*H) row i = from row chosen[i]: the rows of the final read that want logits. `chosen` is read
// from device memory.
struct StreamGatherArgs {
  const float* from = nullptr;
  const uint32_t* chosen = nullptr;  // (count)
  float* to = nullptr;
  uint32_t stream_dim = 0, count = 0;
};
void gather_streams(const StreamGatherArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
