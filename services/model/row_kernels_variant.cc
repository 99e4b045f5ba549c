// Compiled once per instruction set (CMakeLists.txt); all functions in the variant's own namespace, see
// services/quant/variant.h.
#include "services/model/row_kernel_tables.h"
#include "services/quant/math_f32.h"

namespace strata::model::STRATA_KERNEL_VARIANT {
namespace {

namespace math = quant::STRATA_KERNEL_VARIANT;

void scale_by(const float* x, float scale, const float* g, std::size_t count, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] = (x[i] * scale) * g[i];
}

void mix_streams(const float* m, const float* n, uint32_t streams, uint32_t hidden, uint32_t begin,
                 uint32_t end, float* __restrict a) {
  for (uint32_t j = begin; j < end; ++j) a[j] = 0.0f;
  for (uint32_t c = 0; c < streams; ++c) {
    const float* m_row = m + std::size_t{c} * hidden;
    const float* n_row = n + std::size_t{c} * hidden;
    for (uint32_t j = begin; j < end; ++j)
      a[j] = __builtin_fmaf(math::sigmoid_value(m_row[j]), n_row[j], a[j]);
  }
  const float inverse_streams = 1.0f / static_cast<float>(streams);
  for (uint32_t j = begin; j < end; ++j) a[j] *= inverse_streams;
}

void conv_silu(const float* const* taps, uint32_t tap_count, const float* w, uint32_t begin, uint32_t end,
               float* __restrict y) {
  for (uint32_t ch = begin; ch < end; ++ch) y[ch] = 0.0f;
  for (uint32_t i = 0; i < tap_count; ++i) {
    const float* x = taps[i];
    for (uint32_t ch = begin; ch < end; ++ch)
      y[ch] = __builtin_fmaf(w[std::size_t{ch} * tap_count + i], x[ch], y[ch]);
  }
  for (uint32_t ch = begin; ch < end; ++ch) y[ch] = math::silu_value(y[ch]);
}

// The decayed state is computed in both passes instead of being stored in between: the same value, one write
// less.
void delta_step(const DeltaStep& step) {
  const uint32_t dim = step.dim;
  const float decay = step.decay;
  float* __restrict delta = step.delta;
  float* __restrict out = step.out;
  for (uint32_t j = 0; j < dim; ++j) delta[j] = 0.0f;
  for (uint32_t i = 0; i < dim; ++i) {
    const float* row = step.s + std::size_t{i} * dim;
    const float k = step.k[i];
    for (uint32_t j = 0; j < dim; ++j) delta[j] = __builtin_fmaf(decay * row[j], k, delta[j]);
  }
  for (uint32_t j = 0; j < dim; ++j) {
    delta[j] = step.beta * (step.v[j] - delta[j]);
    out[j] = 0.0f;
  }
  for (uint32_t i = 0; i < dim; ++i) {
    float* __restrict row = step.s + std::size_t{i} * dim;
    const float k = step.k[i];
    const float q = step.q[i];
    for (uint32_t j = 0; j < dim; ++j) {
      const float value = __builtin_fmaf(k, delta[j], decay * row[j]);
      row[j] = value;
      out[j] = __builtin_fmaf(value, q, out[j]);
    }
  }
}

void exp_below(float* x, float largest, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] = math::exp_value(x[i] - largest);
}

void gate(float* __restrict y, float scale, const float* gate_values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] = (y[i] * scale) * math::sigmoid_value(gate_values[i]);
}

}  // namespace

constinit const RowKernels kRowKernels = {.scale_by = scale_by,
                                          .mix_streams = mix_streams,
                                          .conv_silu = conv_silu,
                                          .delta_step = delta_step,
                                          .exp_below = exp_below,
                                          .gate = gate};

}  // namespace strata::model::STRATA_KERNEL_VARIANT
