#pragma once

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/prefetch.h"

namespace strata::gpu_worker::cuda {

// This thread's share of a range, which all threads of a grid's first row of blocks ask for together.
__device__ inline void prefetch_share(const PrefetchRange& range) {
  constexpr uint32_t kPiece = 1024;
  if (blockIdx.y != 0) return;
  const uint64_t whole = range.bytes / 16 * 16, step = uint64_t{gridDim.x} * blockDim.x * kPiece;
  // Neighbouring pieces go to different multiprocessors.
  for (uint64_t at = (uint64_t{threadIdx.x} * gridDim.x + blockIdx.x) * kPiece; at < whole; at += step)
    prefetch_to_l2(range.data + at, static_cast<uint32_t>(whole - at < kPiece ? whole - at : kPiece));
}

}  // namespace strata::gpu_worker::cuda
