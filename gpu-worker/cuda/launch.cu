#include "gpu-worker/cuda/launch.h"

#ifndef STRATA_CUDA_EMULATION

namespace strata::gpu_worker::cuda {
namespace {

constexpr int kEarlyFrom = 90;
constexpr int kDriverFrom = 12030;  // knows it in graphs, too

__global__ void any_kernel() {}

}  // namespace

bool can_launch_early() {
  static const bool can = [] {
    int device = 0, major = 0, driver = 0;
    cudaFuncAttributes code = {};
    return cudaDriverGetVersion(&driver) == cudaSuccess && driver >= kDriverFrom &&
           cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaFuncGetAttributes(&code, any_kernel) == cudaSuccess && 10 * major >= kEarlyFrom &&
           code.ptxVersion >= kEarlyFrom;
  }();
  return can;
}

}  // namespace strata::gpu_worker::cuda

#endif
