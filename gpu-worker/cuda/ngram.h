#pragma once
// The n-gram layer behind its table, as model::NgramEmbedding does it (model-qwen4exp section 5). The host
// looks the table's rows up; products_q8.h makes keys and values of them; here is everything else.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/state_capture.h"

namespace strata::gpu_worker::cuda {

struct NgramArgs {
  WindowView window;
  // Weights, float32.
  const float* norm_key = nullptr;    // (C*H)
  const float* norm_query = nullptr;  // (C*H)
  const float* norm_conv = nullptr;   // (C*H)
  const float* conv = nullptr;        // (C*H, taps)
  uint32_t streams_count = 0, hidden = 0, taps = 0;
  uint32_t dilation = 0;  // positions between taps: ple's n-gram size
  float eps = 0;
  // The window.
  const float* keys = nullptr;    // (rows, C, H) key product
  const float* values = nullptr;  // (rows, H) value product
  float* gated = nullptr;         // (rows, C, H) scratch; afterwards what was added
  float* conv_input = nullptr;    // (rows, C, H) scratch
  float* streams = nullptr;       // (rows, C, H), nothing pending; += gated + convolved
  // State: sequence i's (dilation * (taps - 1), C*H), oldest first, begins at history + i * history_stride.
  float* history = nullptr;
  uint64_t history_stride = 0;  // floats
};

// Two launches, three for long windows; one and a copy more for each capture. Moves history, streams and keys
// about once each.
void ngram_add(const NgramArgs& args, cudaStream_t stream, std::span<const StateCapture> captures = {});

}  // namespace strata::gpu_worker::cuda
