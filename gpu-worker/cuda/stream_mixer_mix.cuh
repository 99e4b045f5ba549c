#pragma once
// One column of the mix of the streams, by its thread.

#include "gpu-worker/cuda/quantize_block.cuh"
#include "gpu-worker/cuda/stream_mixer_up.h"

namespace strata::gpu_worker::cuda {

// a[j] of a row and, with the warp's 32 columns, its 8-bit form. mask(c): the value before the sigmoid;
// normed(c): what it meets. Called by whole warps; threads with j >= hidden store nothing (there are none if
// the 8-bit form is wanted).
template <class Mask, class Normed>
__device__ inline void mix_column(const MixArgs& args, uint64_t row, uint32_t j, Mask mask, Normed normed) {
  float sum = 0.0f;
  if (j < args.hidden) {
#pragma unroll 4
    for (uint32_t c = 0; c < args.streams; ++c) sum = fmaf(sigmoid_value(mask(c)), normed(c), sum);
    sum *= 1.0f / static_cast<float>(args.streams);
    args.out[row * args.hidden + j] = sum;
  }
  const bool whole_warp = j - lane_index() < args.hidden;
  if (args.q8.data != nullptr && whole_warp)
    quantize_block(sum, args.q8.data + row * args.q8.stride, args.q8.cols, j / kWarp);
}

}  // namespace strata::gpu_worker::cuda
