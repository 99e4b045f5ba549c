// Compiled once per instruction set (CMakeLists.txt); all functions in the variant's own namespace, see
// services/quant/variant.h.
#include <type_traits>

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

// Loops over keys and columns become vectors only where their bounds are seen.
#define STRATA_INLINE __attribute__((always_inline)) inline

// The delta rule goes through the state two keys at a time and over a stripe of columns, whose lanes stay in
// the cache. (Four keys and more at a time were twice as slow for heads of 128: rows 4096 bytes apart hinder
// each other.)
constexpr uint32_t kStripe = 128;
using Lanes = float[kDeltaLanes][kStripe];
template <uint32_t kCount>
using Keys = std::integral_constant<uint32_t, kCount>;

// The decayed state is computed in both passes instead of being stored in between: the same value, one write
// less.
template <uint32_t kKeys>
STRATA_INLINE void recall(const float* __restrict s, std::size_t stride, uint32_t width, const float* k,
                          float decay, bool first, float* __restrict lane) {
  for (uint32_t j = 0; j < width; ++j) {
    float sum = first ? 0.0f : lane[j];
    for (uint32_t i = 0; i < kKeys; ++i) sum = __builtin_fmaf(decay * s[i * stride + j], k[i], sum);
    lane[j] = sum;
  }
}

template <uint32_t kKeys>
STRATA_INLINE void learn(float* s, std::size_t stride, uint32_t width, const float* __restrict k,
                         const float* __restrict q, float decay, const float* __restrict delta, bool first,
                         float* __restrict lane) {
#pragma GCC ivdep  // rows do not overlap
  for (uint32_t j = 0; j < width; ++j) {
    float sum = first ? 0.0f : lane[j];
    for (uint32_t i = 0; i < kKeys; ++i) {
      const float value = __builtin_fmaf(k[i], delta[j], decay * s[i * stride + j]);
      s[i * stride + j] = value;
      sum = __builtin_fmaf(value, q[i], sum);
    }
    lane[j] = sum;
  }
}

// Gives the keys of each lane to group(how many, first key, whether it is the lane's first, lane), and leaves
// the sums in lanes[0].
template <class Group>
STRATA_INLINE void over_keys(uint32_t dim, uint32_t width, Lanes& lanes, const Group& group) {
  const uint32_t keys = delta_lane_keys(dim);
  uint32_t used = 0;
  for (uint32_t begin = 0; begin < dim; begin += keys, ++used) {
    const uint32_t end = begin + keys < dim ? begin + keys : dim;
    uint32_t i = begin;
    for (; i + 2 <= end; i += 2) group(Keys<2>(), i, i == begin, lanes[used]);
    if (i < end) group(Keys<1>(), i, i == begin, lanes[used]);
  }
  for (; used < kDeltaLanes; ++used) {
    for (uint32_t j = 0; j < width; ++j) lanes[used][j] = 0.0f;
  }
  for (uint32_t s = kDeltaLanes / 2; s > 0; s /= 2) {
    for (uint32_t l = 0; l < s; ++l) {
      for (uint32_t j = 0; j < width; ++j) lanes[l][j] = lanes[l][j] + lanes[l + s][j];
    }
  }
}

STRATA_INLINE void delta_step_of(const DeltaStep& step, uint32_t dim) {
  Lanes lanes;
  float delta[kStripe];
  for (uint32_t begin = 0; begin < dim; begin += kStripe) {
    const uint32_t width = dim - begin < kStripe ? dim - begin : kStripe;
    float* s = step.s + begin;
    over_keys(dim, width, lanes,
              [&](auto count, uint32_t i, bool first, float* lane) __attribute__((always_inline)) {
                recall<count()>(s + std::size_t{i} * dim, dim, width, step.k + i, step.decay, first, lane);
              });
    for (uint32_t j = 0; j < width; ++j) delta[j] = step.beta * (step.v[begin + j] - lanes[0][j]);
    over_keys(dim, width, lanes,
              [&](auto count, uint32_t i, bool first, float* lane) __attribute__((always_inline)) {
                learn<count()>(s + std::size_t{i} * dim, dim, width, step.k + i, step.q + i, step.decay,
                               delta, first, lane);
              });
    for (uint32_t j = 0; j < width; ++j) step.out[begin + j] = lanes[0][j];
  }
}

// With constants the compiler makes better loops.
void delta_step(const DeltaStep& step) {
  switch (step.dim) {
    case 32:
      return delta_step_of(step, 32);
    case 64:
      return delta_step_of(step, 64);
    case 128:
      return delta_step_of(step, 128);
    default:
      return delta_step_of(step, step.dim);
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
