#pragma once
// Products of quantized weights with 8-bit activations (docs/numerics.md, "Products of quantized weights"):
// the bits of quant::multiply under Numerics::kReproducible, for every type and any number of rows.

#include <cuda_runtime.h>

#include <span>

#include "gpu-worker/cuda/product_job.h"

namespace strata::gpu_worker::cuda {

// All jobs read the same rows of x; their types may differ, all are quantized, x.cols == matrix.cols. Jobs of
// one type share a launch, so matrices that read the same activations belong into one call. A matrix may be
// read up to the next multiple of 16 bytes behind its end. Moves every matrix once for up to 8 rows;
// bandwidth bound there, beyond 32 rows bound by arithmetic.
void multiply_q8(std::span<const ProductJob> jobs, Q8Rows x, uint32_t rows, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
