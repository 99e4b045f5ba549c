#pragma once
// The elementwise loops of the forward pass. One source, compiled once per instruction set like the kernels
// of services/quant and chosen with them (STRATA_CPU_KERNELS); every loop's order is fixed, so all variants
// give the same bits.

#include <cstddef>
#include <cstdint>

namespace strata::model {

// The sums over a head's keys run in lanes, each over this many neighbouring keys; the last ones may be short
// or empty. Lanes are then added by halves, as those of quant::sum_f32.
inline constexpr uint32_t kDeltaLanes = 16;
constexpr uint32_t delta_lane_keys(uint32_t dim) { return (dim + kDeltaLanes - 1) / kDeltaLanes; }

// One token of one delta-net head. s (dim, dim) is [key][value].
struct DeltaStep {
  float* s = nullptr;
  const float* q = nullptr;  // (dim) normalized and scaled
  const float* k = nullptr;  // (dim) normalized
  const float* v = nullptr;  // (dim)
  float decay = 0;
  float beta = 0;
  uint32_t dim = 0;
  float* out = nullptr;  // (dim)
};

struct RowKernels {
  // y = (x * scale) * g; y may be x.
  void (*scale_by)(const float* x, float scale, const float* g, std::size_t count, float* y);
  // For j in [begin, end): a[j] = inverse_streams * sum over c, ascending, by fma from 0, of
  // sigmoid(m[c*hidden + j]) * n[c*hidden + j].
  void (*mix_streams)(const float* m, const float* n, uint32_t streams, uint32_t hidden, uint32_t begin,
                      uint32_t end, float* a);
  // For channels [begin, end): y[ch] = silu(sum over taps, ascending, by fma from 0, of w[ch*tap_count + i] *
  // taps[i][ch]).
  void (*conv_silu)(const float* const* taps, uint32_t tap_count, const float* w, uint32_t begin,
                    uint32_t end, float* y);
  // S = decay * S; delta = beta * (v - S^T k); S = S + k delta^T; out = S^T q. Sums over keys in
  // kDeltaLanes, each by fma from 0, ascending.
  void (*delta_step)(const DeltaStep& step);
  // x = exp(x - largest).
  void (*exp_below)(float* x, float largest, std::size_t count);
  // y = (y * scale) * sigmoid(gate).
  void (*gate)(float* y, float scale, const float* gate, std::size_t count);
};

const RowKernels& row_kernels();

// scale_by with 1 / sqrt(mean(x^2) + eps): the RMS norm of one group.
void rms_norm(const float* x, const float* g, float eps, uint32_t count, float* y);
// Each of `groups` stretches of `count` values by its own mean square.
void rms_norm_groups(const float* x, const float* g, float eps, uint32_t groups, uint32_t count, float* y);

}  // namespace strata::model
