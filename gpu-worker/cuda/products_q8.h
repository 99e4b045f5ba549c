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
// bandwidth bound there, beyond 8 rows bound by latency and arithmetic.
void multiply_q8(std::span<const ProductJob> jobs, Q8Rows x, uint32_t rows, cudaStream_t stream);

// gate.out = silu(gate x) * (up x): with multiply_q8_floats() an expert in two launches, for one row or two
// (more are computed one after the other). Both matrices are of one type and have as many rows.
void multiply_q8_silu(const ProductJob& gate, const DeviceMatrix& up, Q8Rows x, uint32_t rows,
                      cudaStream_t stream);
// The product with rows that are not quantized yet, for as few of them. They are aligned to 16 bytes.
void multiply_q8_floats(const ProductJob& job, FloatRows x, uint32_t rows, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
