#pragma once
// Dequantization and the canonical products of every supported weight type. The exact expressions, bit for
// bit, are fixed in docs/numerics.md; quant formats per type in the specification "quant-formats".

#include "services/quant/matrix.h"

namespace strata::quant {

// kUnimplemented with the type's name unless values of this type can be used as weights.
Status require_supported(TensorType type);
// True for types whose products take 8-bit activations under Numerics::kReproducible (everything but F32,
// F16, BF16).
bool is_quantized(TensorType type);

// `count` values of one row, starting at its first block; count is a multiple of the type's block.
void dequantize_row(TensorType type, const std::byte* blocks, float* out, std::size_t count);

// y[token][row] = W[row] . x[token] for rows row_begin..row_end-1 of all tokens; y rows are `y_stride` floats
// apart and y points at row 0's column. The bits of every value depend on its weight row and its activation
// row alone. Several threads may take row ranges of one product at once; multiples of 8 rows waste no lanes.
// Needs x.ensure_q8() before, when needs_q8(w.type, numerics).
void multiply(const Matrix& w, const Activations& x, uint32_t row_begin, uint32_t row_end, float* y,
              std::size_t y_stride, Numerics numerics);
// The same for chosen rows of x, in any order: y[i][row] = W[row] . x[tokens[i]]; y[i] points at row 0's
// value. `next` says what this thread will read after these rows (a hint, may be empty): kernels fetch it
// into the cache while they finish.
void multiply(const Matrix& w, const Activations& x, std::span<const uint32_t> tokens, uint32_t row_begin,
              uint32_t row_end, std::span<float* const> y, Numerics numerics,
              std::span<const std::byte> next = {});
inline bool needs_q8(TensorType type, Numerics numerics) {
  return numerics == Numerics::kReproducible && is_quantized(type);
}

// The canonical float32 dot product (also used for norms of float rows, attention scores, ...): 64 lanes,
// lane l takes elements l, l+64, ... with fma in ascending order; then lanes l and l+32, l+16, ..., l+1 are
// added in that order.
float dot_f32(const float* a, const float* b, std::size_t count);
// The same order of summation for sum of x and sum of x^2.
float sum_f32(const float* x, std::size_t count);
float sum_squares_f32(const float* x, std::size_t count);

// The project's own functions, built from IEEE operations only, so that host and device agree to the bit
// (docs/numerics.md).
float exp_f32(float x);
float sigmoid_f32(float x);
float silu_f32(float x);
float softplus_f32(float x);
// out[i] = silu(gate[i]) * up[i]; out may be gate or up.
void silu_multiply(const float* gate, const float* up, float* out, std::size_t count);
// y[i] = fma(scale, x[i], y[i])
void add_scaled_f32(float scale, const float* x, float* y, std::size_t count);

}  // namespace strata::quant
