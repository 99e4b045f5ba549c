#pragma once
// Products of weights of any type with float32 activations: what docs/model.md lists as "float32 always"
// (stream mixers, router, shared expert's gate, alpha and beta, indexer), and every matrix of a float type.

#include <cuda_runtime.h>

#include <span>

#include "gpu-worker/cuda/product_job.h"

namespace strata::gpu_worker::cuda {

// out[row] = W x[row] of every job (1 to kProductJobsMax of them, all with the same cols) for x rows
// 0..rows-1, in one launch. x.data is aligned to 16 and x.stride a multiple of 4 wherever cols is one.
// Gives the bits of quant::multiply(..., Numerics::kExact); a row's bits depend on that row alone.
// Moves the bytes of the weights once and x once per block.
void multiply_f32(std::span<const ProductJob> jobs, FloatRows x, uint32_t rows, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
