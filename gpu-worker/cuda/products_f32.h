#pragma once
// Products of weights of any type with float32 activations: what docs/model.md lists as "float32 always"
// (stream mixers, router, shared expert's gate, alpha and beta, indexer), and every matrix of a float type.

#include <cuda_runtime.h>

#include <span>

#include "gpu-worker/cuda/product_job.h"

namespace strata::gpu_worker::cuda {

// out[row] = W x[row] of every job (at most kProductJobsMax, all with the same cols) for x rows 0..rows-1, in
// one launch. Gives the bits of quant::multiply(..., Numerics::kExact); a row's bits depend on that row
// alone. Rows of x that begin at multiples of 16 bytes are copied faster. A matrix may be read up to the next
// multiple of 16 bytes behind its end.
// Moves the weights once (per 8 rows of x, from the cache) and x once per block; bound by arithmetic for
// many rows.
void multiply_f32(std::span<const ProductJob> jobs, FloatRows x, uint32_t rows, cudaStream_t stream);

// What becomes of a product y before it is stored.
enum class Finish : uint8_t {
  kNone,
  kLow,     // silu(y / divisor): the stream mixer's low values
  kInject,  // 2 * sigmoid(y / divisor): its inject weights
};
struct FinishedJob {
  ProductJob product;
  Finish finish = Finish::kNone;
};
void multiply_f32(std::span<const FinishedJob> jobs, float divisor, FloatRows x, uint32_t rows,
                  cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
