#pragma once
// What the kernels of the delta-net share: the sums over keys, and the numbers of a row.

#include <type_traits>

#include "gpu-worker/cuda/convolution.cuh"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/quantize_block.cuh"
#include "gpu-worker/cuda/reductions.cuh"
#include "gpu-worker/cuda/stretches.h"
#include "services/model/row_kernels.h"

namespace strata::gpu_worker::cuda {

// Of the q and k norms, whatever the model's eps is.
inline constexpr float kHeadEps = 1e-6f;

// More rows a sequence than this, and the work that needs no state is spread over rows before the recurrence.
inline constexpr uint32_t kShortRows = 8;

// Parts of a window only for heads without has_register_state().
void delta_net_short(const DeltaNetArgs& args, RowRange stretch, cudaStream_t stream);
// Needs has_register_state(args.dim).
void delta_net_long(const DeltaNetArgs& args, const LayerCaptures& captures, cudaStream_t stream);
// Head sizes whose state is kept in registers.
inline bool has_register_state(uint32_t dim) { return dim == 32 || dim == 64 || dim == 128; }
// run(std::integral_constant<int, dim>) for one of those.
template <class Run>
void with_head_size(uint32_t dim, const Run& run) {
  switch (dim) {
    case 32:
      return run(std::integral_constant<int, 32>());
    case 64:
      return run(std::integral_constant<int, 64>());
    default:
      return run(std::integral_constant<int, 128>());
  }
}

__host__ __device__ inline uint32_t channel_count(const DeltaNetArgs& args) {
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

inline void keep_history(const DeltaNetArgs& args, const LayerCaptures& captures, const StateCapture& capture,
                         cudaStream_t stream) {
  keep_floats(capture.to->layers[captures.layer].conv, args.history, args.history_stride,
              uint64_t{args.taps - 1} * channel_count(args), capture, stream);
}
inline void keep_state(const DeltaNetArgs& args, const LayerCaptures& captures, const StateCapture& capture,
                       cudaStream_t stream) {
  keep_floats(capture.to->layers[captures.layer].s, args.state, args.state_stride,
              uint64_t{args.value_heads} * args.dim * args.dim, capture, stream);
}

// What every value of a query or key head is multiplied by.
__device__ inline float head_scale(float sum_squares, uint32_t dim, bool query) {
  const float scale = 1.0f / sqrtf(sum_squares + kHeadEps);
  return query ? scale * (1.0f / sqrtf(static_cast<float>(dim))) : scale;
}

__device__ inline float log_decay_of(const DeltaNetArgs& args, uint32_t head, float alpha) {
  const float a = args.a[head], dt_bias = args.dt_bias[head];  // both asked for before either is used
  return a * softplus_value(alpha + dt_bias);
}
__device__ inline float decay_of(const DeltaNetArgs& args, uint32_t head, float alpha) {
  return exp_value(log_decay_of(args, head, alpha));
}

// The lanes of the sums over a head's keys (model::kDeltaLanes): neighbouring keys share a lane, lanes are
// added by halves.
inline constexpr uint32_t kKeyLanes = model::kDeltaLanes;
__device__ inline float sum_of_key_lanes(float (&lanes)[kKeyLanes]) {
#pragma unroll
  for (uint32_t s = kKeyLanes / 2; s > 0; s /= 2) {
#pragma unroll
    for (uint32_t l = 0; l < s; ++l) lanes[l] = lanes[l] + lanes[l + s];
  }
  return lanes[0];
}

// Neighbouring values that one load or store moves.
template <int kCount>
struct alignas(4 * kCount) Neighbours {
  float at[kCount];
};
template <int kCount>
__device__ inline void load_neighbours(const float* from, float* to) {
  constexpr int kAtOnce = kCount < 4 ? kCount : 4;
#pragma unroll
  for (int i = 0; i < kCount; i += kAtOnce) {
    const auto some = *reinterpret_cast<const Neighbours<kAtOnce>*>(from + i);
#pragma unroll
    for (int c = 0; c < kAtOnce; ++c) to[i + c] = some.at[c];
  }
}

// The RMS norm and the gate (a sigmoid's value) of one of a head's outputs, whose squares sum to sum_squares.
__device__ inline float gated_output(const DeltaNetArgs& args, float value, float sum_squares, float norm,
                                     float gate) {
  return normed(value, rms_scale(sum_squares, args.dim, args.eps), norm) * gate;
}

}  // namespace strata::gpu_worker::cuda
