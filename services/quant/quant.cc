#include "services/quant/quant.h"

#include <algorithm>

#include "services/base/check.h"
#include "services/quant/kernels.h"

namespace strata::quant {
namespace {

const TypeKernels& kernels_of(TensorType type) {
  const TypeKernels& found = kernels().of(type);
  CHECK(found.supported(), "weights of type {}", gguf::tensor_type_info(type).name);
  return found;
}

// token_of(i) is the row of x for output i, y_of(i) where that output's row 0 is.
template <class TokenOf, class YOf>
void multiply_tokens(const Matrix& w, const Activations& x, std::size_t count, uint32_t row_begin,
                     uint32_t row_end, Numerics numerics, std::span<const std::byte> next, TokenOf token_of,
                     YOf y_of) {
  CHECK(row_begin <= row_end && row_end <= w.rows, "rows {}..{} of {}", row_begin, row_end, w.rows);
  CHECK(x.cols() == w.cols, "{} activations for {} columns", x.cols(), w.cols);
  const bool q8 = needs_q8(w.type, numerics);
  CHECK(q8 ? x.has_q8() : x.has_f32(), "activations lack the form that {} needs",
        gguf::tensor_type_info(w.type).name);
  const TypeKernels& kernel = kernels_of(w.type);
  for (std::size_t first = 0; first < count; first += kTokensPerCall) {
    Q8Row q8_rows[kTokensPerCall];
    const float* f32_rows[kTokensPerCall];
    float* y_rows[kTokensPerCall];
    const std::size_t tokens = std::min<std::size_t>(count - first, kTokensPerCall);
    for (std::size_t i = 0; i < tokens; ++i) {
      const uint32_t token = token_of(first + i);
      CHECK(token < x.tokens(), "token {} of {}", token, x.tokens());
      if (q8) {
        q8_rows[i] = x.q8(token);
      } else {
        f32_rows[i] = x.f32(token);
      }
      y_rows[i] = y_of(first + i);
    }
    const ProductArgs args{.weights = w.data,
                           .row_bytes = w.row_bytes,
                           .cols = w.cols,
                           .scale = w.scale,
                           .row_begin = row_begin,
                           .row_end = row_end,
                           .tokens = static_cast<uint32_t>(tokens),
                           .version = x.version(),
                           .q8 = q8_rows,
                           .f32 = f32_rows,
                           .y = y_rows,
                           .next = next};
    (q8 ? kernel.product_q8 : kernel.product_f32)(args);
  }
}

}  // namespace

Status require_supported(TensorType type) {
  if (kernels().of(type).supported()) return {};
  return fail(Code::kUnimplemented, "weights of type {} are not supported by this build",
              gguf::tensor_type_info(type).name);
}

bool is_quantized(TensorType type) { return kernels_of(type).product_q8 != nullptr; }

void dequantize_row(TensorType type, const std::byte* blocks, float* out, std::size_t count) {
  CHECK(count % gguf::tensor_type_info(type).block_values == 0, "{} values of type {}", count,
        gguf::tensor_type_info(type).name);
  kernels_of(type).dequantize(blocks, out, count);
}

void multiply(const Matrix& w, const Activations& x, uint32_t row_begin, uint32_t row_end, float* y,
              std::size_t y_stride, Numerics numerics) {
  multiply_tokens(
      w, x, x.tokens(), row_begin, row_end, numerics, {},
      [](std::size_t i) { return static_cast<uint32_t>(i); },
      [&](std::size_t i) { return y + i * y_stride; });
}

void multiply(const Matrix& w, const Activations& x, std::span<const uint32_t> tokens, uint32_t row_begin,
              uint32_t row_end, std::span<float* const> y, Numerics numerics,
              std::span<const std::byte> next) {
  CHECK(tokens.size() == y.size(), "{} tokens, {} outputs", tokens.size(), y.size());
  multiply_tokens(
      w, x, tokens.size(), row_begin, row_end, numerics, next, [&](std::size_t i) { return tokens[i]; },
      [&](std::size_t i) { return y[i]; });
}

float dot_f32(const float* a, const float* b, std::size_t count) {
  return kernels().floats->dot(a, b, count);
}
float sum_f32(const float* x, std::size_t count) { return kernels().floats->sum(x, count); }
float sum_squares_f32(const float* x, std::size_t count) { return kernels().floats->sum_squares(x, count); }

float exp_f32(float x) { return kernels().floats->exp(x); }
float sigmoid_f32(float x) { return kernels().floats->sigmoid(x); }
float silu_f32(float x) { return kernels().floats->silu(x); }
float softplus_f32(float x) { return kernels().floats->softplus(x); }

void silu_multiply(const float* gate, const float* up, float* out, std::size_t count) {
  kernels().floats->silu_multiply(gate, up, out, count);
}
void add_scaled_f32(float scale, const float* x, float* y, std::size_t count) {
  kernels().floats->add_scaled(scale, x, y, count);
}

}  // namespace strata::quant
