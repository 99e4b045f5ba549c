#pragma once
// The one way in which kernels are started, so that the same source runs on a GPU and in the emulation
// (emulation/README.md). Nothing here synchronizes. A launch that fails leaves its error for
// cudaGetLastError, which the device asks once a window.

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace strata::gpu_worker::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;                    // one-dimensional
  std::size_t shared_bytes = 0;  // dynamic shared memory
  // The kernel may begin while the one before it in the stream still runs, where the GPU can do that: it
  // calls await_earlier_kernels() (device_code.cuh).
  bool early = false;
};

#ifdef STRATA_CUDA_EMULATION
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args&&... args) {
  emulation::launch(kernel, shape.grid, shape.block, shape.shared_bytes, stream, std::forward<Args>(args)...);
}
#else
// Whether kernels may be launched early: on GPUs from sm_90, with code compiled for them (older code has no
// await_earlier_kernels()).
bool can_launch_early();

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args&&... args) {
  // More than 48 KiB must be asked for; the call is cheap and idempotent.
  if (shape.shared_bytes > 48 * 1024) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shape.shared_bytes));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute early = {};
  if (shape.early && can_launch_early()) {
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &early;
    config.numAttrs = 1;
  }
  cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}
#endif

}  // namespace strata::gpu_worker::cuda
