#pragma once
// The Gated DeltaNet layer between its projections, as model::DeltaNet does it (model-qwen4exp section 6), in
// the recurrent form: any cut of a sequence into windows gives the same bits.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

struct DeltaNetArgs {
  WindowView window;
  uint32_t key_heads = 0, value_heads = 0;  // nk, nv
  uint32_t dim = 0;                         // s: of a head
  uint32_t taps = 0;                        // K1
  float eps = 0;
  // Weights, float32. channels = (2 nk + nv) s.
  const float* conv = nullptr;     // (channels, taps)
  const float* a = nullptr;        // (nv) ssm_a
  const float* dt_bias = nullptr;  // (nv)
  const float* norm = nullptr;     // (s) ssm_norm
  // Projections of the window.
  FloatRows qkv;    // (rows, channels)
  FloatRows gate;   // (rows, nv*s): z
  FloatRows alpha;  // (rows, nv)
  FloatRows beta;   // (rows, nv)
  // Results.
  float* heads = nullptr;  // out (rows, nv*s): what the output projection reads
  Q8Rows heads_q8 = {};    // out, the same in 8 bits; data == nullptr: not wanted
  // State of sequence i: S (nv, s, s), [head][key][value], at state + i * state_stride, and the convolution's
  // (taps - 1, channels), oldest first, at history + i * history_stride. Strides in floats.
  float* state = nullptr;
  uint64_t state_stride = 0;
  float* history = nullptr;
  uint64_t history_stride = 0;
  // Scratch. Long windows leave other numbers in alpha and beta.
  float* mixed = nullptr;        // (rows, channels), long windows only
  uint32_t* arrivals = nullptr;  // (segments, nk), zero before the first call; every call leaves zeros
};

// One launch for short windows (decode), four for long ones. Moves S of every sequence of the window twice
// (3.1 MB each way for the real shape) beside the rows.
void delta_net(const DeltaNetArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
