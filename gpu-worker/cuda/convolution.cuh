#pragma once
// Causal convolutions per channel over the rows of a window and the history before it, as
// model::HistoryTaps and append_history have them.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/math.cuh"

namespace strata::gpu_worker::cuda {

// One channel of one sequence: its inputs in the window and in the history, (history_rows, width), oldest
// first.
struct ChannelInputs {
  const float* window = nullptr;  // the channel in row 0 of the segment
  uint64_t stride = 0;            // floats between rows of the window
  float* history = nullptr;       // the channel in the oldest row
  uint32_t width = 0;             // floats between rows of the history
  uint32_t history_rows = 0;

  // Where the input `back` positions before row `index` of the segment is. An address and not the input:
  // loads behind branches would wait for each other.
  __device__ const float* before(uint32_t index, uint32_t back) const {
    const bool here = back <= index;
    return (here ? window : history) +
           uint64_t{here ? index - back : history_rows + index - back} * (here ? stride : width);
  }

  // silu of the sum over taps, oldest first; the last tap meets the row itself. Some taps are read before any
  // is used.
  __device__ float convolved(uint32_t index, const float* weights, uint32_t taps, uint32_t dilation) const {
    constexpr uint32_t kAtOnce = 4;
    float sum = 0.0f;
    for (uint32_t first = 0; first < taps; first += kAtOnce) {
      float inputs[kAtOnce], factors[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i >= taps) continue;
        inputs[i] = *before(index, dilation * (taps - 1 - first - i));
        factors[i] = weights[first + i];
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i < taps) sum = fmaf(factors[i], inputs[i], sum);
      }
    }
    return silu_value(sum);
  }

  // Drops the oldest rows and appends those of a segment of `rows`. Some rows are read before as many are
  // written, so that the reads overlap; in ascending order none is overwritten before it was read.
  __device__ void append(uint32_t rows) const {
    constexpr uint32_t kAtOnce = 4;
    for (uint32_t first = 0; first < history_rows; first += kAtOnce) {
      float kept[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i < history_rows) kept[i] = *before(rows + first + i, history_rows);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (first + i < history_rows) history[uint64_t{first + i} * width] = kept[i];
      }
    }
  }
};

}  // namespace strata::gpu_worker::cuda
