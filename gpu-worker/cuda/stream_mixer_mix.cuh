#pragma once
// Columns of the mix of the streams, by their thread.

#include "gpu-worker/cuda/quantize_block.cuh"
#include "gpu-worker/cuda/stream_mixer_up.h"

namespace strata::gpu_worker::cuda {

// a[j] of a row for kValues columns from j on (a multiple of kValues) and, with the 32 columns of
// neighbouring threads, their 8-bit form. mask(c): the values before the sigmoid; normed(c): what they meet;
// both give float[kValues] in a MixValues. Called by whole warps; threads with j >= hidden store nothing.
template <int kValues>
struct MixValues {
  float of[kValues];
};
template <int kValues, class Mask, class Normed>
__device__ inline void mix_columns(const MixArgs& args, uint64_t row, uint32_t j, Mask mask, Normed normed) {
  float sum[kValues] = {};
  if (j < args.hidden) {
#pragma unroll 4
    for (uint32_t c = 0; c < args.streams; ++c) {
      const MixValues<kValues> m = mask(c), x = normed(c);
#pragma unroll
      for (int i = 0; i < kValues; ++i) sum[i] = fmaf(sigmoid_value(m.of[i]), x.of[i], sum[i]);
    }
    float* out = args.out + row * args.hidden + j;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] *= 1.0f / static_cast<float>(args.streams);
    if constexpr (kValues == 4) {
      *reinterpret_cast<float4*>(out) = {sum[0], sum[1], sum[2], sum[3]};
    } else {
      out[0] = sum[0];
    }
  }
  if (args.q8.data == nullptr) return;
  std::byte* to = j < args.hidden ? args.q8.data + row * args.q8.stride : nullptr;
  quantize_block<kValues>(sum, to, args.q8.cols, j / kWarp);
}
// One column a thread.
template <class Mask, class Normed>
__device__ inline void mix_column(const MixArgs& args, uint64_t row, uint32_t j, Mask mask, Normed normed) {
  mix_columns<1>(
      args, row, j, [&](uint32_t c) { return MixValues<1>{{mask(c)}}; },
      [&](uint32_t c) { return MixValues<1>{{normed(c)}}; });
}

}  // namespace strata::gpu_worker::cuda
