#pragma once
// Memory that a later kernel will read, for one that leaves the memory idle meanwhile: a kernel which waits
// for chains of additions can bring the next weights into the L2 cache. A hint: it changes no result.

#include <cstddef>
#include <cstdint>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

struct PrefetchRange {
  const std::byte* data = nullptr;  // aligned to 16
  uint64_t bytes = 0;
};

// The first bytes_max bytes of a matrix. A kernel of 3 us hides about 8 MB on a card with 4 TB/s; more than
// half of the L2 cache (25 MB of an H200's 50) would push itself out.
inline PrefetchRange prefetch_of(const DeviceMatrix& matrix, uint64_t bytes_max) {
  const uint64_t bytes = matrix.rows * matrix.row_bytes;
  return {matrix.data, bytes < bytes_max ? bytes : bytes_max};
}

}  // namespace strata::gpu_worker::cuda
