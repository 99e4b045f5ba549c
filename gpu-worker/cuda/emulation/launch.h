#pragma once
// Starting kernels in the emulation: what ../launch.h calls.

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "gpu-worker/cuda/emulation/host_api.h"
#include "gpu-worker/cuda/emulation/vector_types.h"

namespace strata::gpu_worker::cuda::emulation {

struct Grid {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  void (*kernel)() = nullptr;  // only to name it in messages
};

// Queues a run of `thread` for each thread of the grid on the stream; faults of the shape go to
// cudaGetLastError.
void launch_grid(const Grid& grid, cudaStream_t stream, std::function<void()> thread);

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Args&&... args) {
  // As on a GPU, the arguments are converted and copied now.
  launch_grid(
      {grid, block, shared_bytes, reinterpret_cast<void (*)()>(kernel)}, stream,
      [kernel, values = std::tuple<Params...>(std::forward<Args>(args)...)] { std::apply(kernel, values); });
}

}  // namespace strata::gpu_worker::cuda::emulation
