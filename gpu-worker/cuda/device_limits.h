#pragma once
// What the cards in use can do, asked once.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace strata::gpu_worker::cuda {

// Dynamic shared memory that a block may ask for: 64 KiB on the smallest card, and no more than 96 KiB is
// used.
inline uint32_t shared_bytes_max() {
  static const uint32_t most = [] {
    int device = 0, bytes = 0;
    const bool known =
        cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
    return known ? std::min(static_cast<uint32_t>(bytes), uint32_t{96 * 1024}) : uint32_t{48 * 1024};
  }();
  return most;
}

inline uint32_t multiprocessors() {
  static const uint32_t count = [] {
    int device = 0, number = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return known && number > 0 ? static_cast<uint32_t>(number) : 1u;
  }();
  return count;
}

}  // namespace strata::gpu_worker::cuda
