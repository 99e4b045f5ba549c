// Compiled once per kernel variant (services/quant/CMakeLists.txt): dot products and sums in 64 lanes, the
// activation rule, and the functions.
#include "services/quant/math_f32.h"
#include "services/quant/product_f32.h"
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {
namespace {

float dot(const float* a, const float* b, std::size_t count) {
  Lanes lanes;
  feed_products<F32>(lanes, reinterpret_cast<const std::byte*>(a), b, count);
  return lanes.total();
}

float sum(const float* x, std::size_t count) {
  Lanes lanes;
  lanes.feed(
      count, [&](std::size_t i, FloatVec acc) { return plus(acc, load_vec(x + i)); },
      [&](std::size_t i, float acc) { return acc + x[i]; });
  return lanes.total();
}

void quantize_block(const float* x, int8_t* q, float* d, int32_t* sum_of_q) {
  uint32_t max_bits = 0;  // magnitudes compare like their bits, and NaN above infinity
  for (uint32_t i = 0; i < kActivationBlock; ++i) {
    const uint32_t bits = bits_of_float(x[i]) & 0x7fffffffu;
    max_bits = bits > max_bits ? bits : max_bits;
  }
  const float amax = float_of_bits(max_bits);
  if (max_bits >= 0x7f800000u || amax < 0x1p-100f) {
    std::memset(q, 0, kActivationBlock);
    *d = max_bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
    *sum_of_q = 0;
    return;
  }
  const float inverse = 127.0f / amax;
  int32_t total = 0;
  for (uint32_t i = 0; i < kActivationBlock; ++i) {
    const int32_t value = nearest_integer(x[i] * inverse);
    q[i] = static_cast<int8_t>(value);
    total += value;
  }
  *d = amax / 127.0f;
  *sum_of_q = total;
}

void quantize_q8(const float* x, std::size_t count, int8_t* q, float* d, int32_t* sums) {
  for (std::size_t i = 0; i < count; i += kActivationBlock) {
    quantize_block(x + i, q + i, d + i / kActivationBlock, sums + i / kActivationBlock);
  }
}

void silu_multiply(const float* gate, const float* up, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = silu_value(gate[i]) * up[i];
}

void add_scaled(float scale, const float* x, float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] = __builtin_fmaf(scale, x[i], y[i]);
}

float exp_one(float x) { return exp_value(x); }
float sigmoid_one(float x) { return sigmoid_value(x); }
float silu_one(float x) { return silu_value(x); }
float softplus_one(float x) { return softplus_value(x); }
float sum_squares(const float* x, std::size_t count) { return dot(x, x, count); }

}  // namespace

constinit const FloatKernels kFloats = {
    .dot = dot,
    .sum = sum,
    .sum_squares = sum_squares,
    .quantize_q8 = quantize_q8,
    .exp = exp_one,
    .sigmoid = sigmoid_one,
    .silu = silu_one,
    .softplus = softplus_one,
    .silu_multiply = silu_multiply,
    .add_scaled = add_scaled,
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
