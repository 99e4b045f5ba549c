#include "gpu-worker/cuda/runtime.h"

namespace strata::gpu_worker::cuda {

Status cuda_status(cudaError_t error, std::string_view what, std::source_location where) {
  if (error == cudaSuccess) return {};
  // The call's name says enough; its arguments are variables of the source.
  const std::string_view call = what.substr(0, what.find('('));
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return {code, fmt::format("{}: {}: {}", call, cudaGetErrorName(error), cudaGetErrorString(error)), where};
}

}  // namespace strata::gpu_worker::cuda
