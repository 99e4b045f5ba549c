#pragma once
// Activations become 8-bit (docs/numerics.md, "Activations"): the one rule, as quant::quantize_q8.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"

namespace strata::gpu_worker::cuda {

// out row i = quantize_q8(x row i). cols is a multiple of 32.
// Moves 4 * rows * cols bytes in, about 1.25 * rows * cols out; the bits of quant::quantize_q8.
struct QuantizeArgs {
  FloatRows x;  // (rows, cols)
  uint32_t rows = 0;
  uint32_t cols = 0;
  Q8Rows out;
};
void quantize_q8(const QuantizeArgs& args, cudaStream_t stream);

// h(i) = silu(gate(i)) * up(i), kept as floats, quantized, or both: outputs without data are left out. `out`
// may be gate or up.
// The bits of quant::silu_multiply, then quant::quantize_q8. cols is a multiple of 32 if q8 is wanted.
struct SiluMultiplyArgs {
  FloatRows gate, up;  // (rows, cols)
  uint32_t rows = 0;
  uint32_t cols = 0;
  const uint32_t* row_count = nullptr;  // in device memory, if given: only that many of the rows exist
  FloatRows out = {};
  Q8Rows q8 = {};
};
void silu_multiply(const SiluMultiplyArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
