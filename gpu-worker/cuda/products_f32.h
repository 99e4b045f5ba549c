#pragma once
// Products of weights of any type with float32 activations: what docs/model.md lists as "float32 always"
// (stream mixers, router, shared expert's gate, alpha and beta, indexer), and every matrix of a float type.

#include <span>

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/product_job.h"

namespace strata::gpu_worker::cuda {

// Memory for products of many rows: both operands as floats, in the order in which they are read. Contents
// free before and after; aligned to 16.
struct FloatScratch {
  float* data = nullptr;
  uint64_t floats = 0;
};
// Sums of a part of the lanes that wait for the others.
inline constexpr uint64_t kPartFloats = 4u << 20;
// What lets products with (weight_rows, cols) and `rows` rows of x run in one go. With less they run in
// pieces, with next to nothing like products of few rows.
uint64_t scratch_floats(uint32_t weight_rows, uint32_t cols, uint32_t rows);

// out[row] = W x[row] of every job (at most kProductJobsMax, all with the same cols) for x rows 0..rows-1.
// One launch for few rows, three or four for many, which use `scratch`. Gives the bits of
// quant::multiply(..., Numerics::kExact); a row's bits depend on that row alone. Rows of x that begin at
// multiples of 16 bytes are copied faster. A matrix may be read up to the next multiple of 16 bytes behind
// its end. Few rows: moves the weights once (per 4 rows of x, from the cache). Many: bound by arithmetic.
void multiply_f32(std::span<const ProductJob> jobs, FloatRows x, uint32_t rows, cudaStream_t stream,
                  FloatScratch scratch = {});

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
                  cudaStream_t stream, FloatScratch scratch = {});

}  // namespace strata::gpu_worker::cuda
