#pragma once
// What the kernels of the delta-net share: one column of a head's state, and the numbers of a row.

#include "gpu-worker/cuda/convolution.cuh"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/quantize_block.cuh"
#include "gpu-worker/cuda/reductions.cuh"

namespace strata::gpu_worker::cuda {

// Of the q and k norms, whatever the model's eps is.
inline constexpr float kHeadEps = 1e-6f;

// More rows a sequence than this, and the work that needs no state is spread over rows before the recurrence.
inline constexpr uint32_t kShortRows = 8;

void delta_net_short(const DeltaNetArgs& args, cudaStream_t stream);
void delta_net_long(const DeltaNetArgs& args, cudaStream_t stream);  // needs has_column_kernel(args.dim)
inline bool has_column_kernel(uint32_t dim) { return dim == 32 || dim == 64 || dim == 128; }

__device__ inline uint32_t channel_count(const DeltaNetArgs& args) {
  return (2 * args.key_heads + args.value_heads) * args.dim;
}

__device__ inline ChannelInputs channel_inputs(const DeltaNetArgs& args, const SegmentInfo& segment,
                                               uint32_t channel) {
  return {.window = args.qkv.data + segment.row_begin * args.qkv.stride + channel,
          .stride = args.qkv.stride,
          .history = args.history + segment.sequence * args.history_stride + channel,
          .width = channel_count(args),
          .history_rows = args.taps - 1};
}

// What every value of a query or key head is multiplied by.
__device__ inline float head_scale(float sum_squares, uint32_t dim, bool query) {
  const float scale = 1.0f / sqrtf(sum_squares + kHeadEps);
  return query ? scale * (1.0f / sqrtf(static_cast<float>(dim))) : scale;
}

__device__ inline float decay_of(const DeltaNetArgs& args, uint32_t head, float alpha) {
  return exp_value(args.a[head] * softplus_value(alpha + args.dt_bias[head]));
}

// A column of a head's state, S[0..dim)[j], in registers: all its loads are in flight at once.
template <int kDim>
struct RegisterColumn {
  float values[kDim];

  __device__ RegisterColumn(const float* column, uint32_t /*dim*/) {
#pragma unroll
    for (int i = 0; i < kDim; ++i) values[i] = column[i * kDim];
  }
  __device__ void store(float* column) const {
#pragma unroll
    for (int i = 0; i < kDim; ++i) column[i * kDim] = values[i];
  }
  // One token: what model's delta_step does for one j. q and k in shared memory, aligned to 16.
  __device__ float step(const float* q, const float* k, float v, float decay, float beta) {
    float m = 0.0f;
#pragma unroll
    for (int i = 0; i < kDim; ++i) {
      values[i] = decay * values[i];
      m = fmaf(values[i], k[i], m);
    }
    const float delta = beta * (v - m);
    float out = 0.0f;
#pragma unroll
    for (int i = 0; i < kDim; ++i) {
      values[i] = fmaf(k[i], delta, values[i]);
      out = fmaf(values[i], q[i], out);
    }
    return out;
  }
};

// The same for any dim: the column stays where it is.
struct MemoryColumn {
  float* column;
  uint32_t dim;

  __device__ MemoryColumn(float* column_in, uint32_t dim_in) : column(column_in), dim(dim_in) {}
  __device__ void store(float* /*column*/) const {}
  __device__ float step(const float* q, const float* k, float v, float decay, float beta) {
    float m = 0.0f;
    for (uint32_t i = 0; i < dim; ++i) m = fmaf(decay * column[i * dim], k[i], m);
    const float delta = beta * (v - m);
    float out = 0.0f;
    for (uint32_t i = 0; i < dim; ++i) {
      const float value = fmaf(k[i], delta, decay * column[i * dim]);
      column[i * dim] = value;
      out = fmaf(value, q[i], out);
    }
    return out;
  }
};

// The RMS norm and the gate of value j of a head's output, whose squares sum to sum_squares.
__device__ inline float gated_output(const DeltaNetArgs& args, float value, float sum_squares, uint32_t j,
                                     float gate) {
  return normed(value, rms_scale(sum_squares, args.dim, args.eps), args.norm[j]) * sigmoid_value(gate);
}

}  // namespace strata::gpu_worker::cuda
