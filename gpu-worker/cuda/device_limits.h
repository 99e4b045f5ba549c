#pragma once
// What the cards in use can do, asked once.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace strata::gpu_worker::cuda {

// Dynamic shared memory that a block may ask for: 64 KiB on the smallest card.
inline uint32_t block_shared_bytes() {
  static const uint32_t most = [] {
    int device = 0, bytes = 0;
    const bool known =
        cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess;
    return known ? static_cast<uint32_t>(bytes) : uint32_t{48 * 1024};
  }();
  return most;
}
// What kernels that run on every card make use of.
inline uint32_t shared_bytes_max() { return std::min(block_shared_bytes(), uint32_t{96 * 1024}); }

// From sm_80 on: the matrix products of device_code.cuh.
inline bool has_tensor_cores() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 8;
}

inline uint64_t second_level_cache_bytes() {
  static const uint64_t bytes = [] {
    int device = 0, number = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&number, cudaDevAttrL2CacheSize, device) == cudaSuccess;
    return known ? static_cast<uint64_t>(number) : 0;
  }();
  return bytes;
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
