#pragma once
// CUDA's errors as the project's.

#include <cuda_runtime.h>

#include <source_location>
#include <string_view>

#include "services/base/status.h"

namespace strata::gpu_worker::cuda {

// "what: cudaErrorName: CUDA's sentence". kResourceExhausted where memory is missing, kInternal otherwise.
Status cuda_status(cudaError_t error, std::string_view what,
                   std::source_location where = std::source_location::current());

}  // namespace strata::gpu_worker::cuda

// TRY_CUDA(cudaMalloc(&p, bytes));   leaves the function with the error
#define TRY_CUDA(...) TRY_OK(::strata::gpu_worker::cuda::cuda_status((__VA_ARGS__), #__VA_ARGS__))
