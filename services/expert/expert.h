#pragma once
// One expert: y = down( silu(gate x) * (up x) ), for 1..n tokens, by the canonical expression of
// docs/numerics.md. Linked by the expert worker (misses), by the host device (hits) and by the gpu-worker's
// lost-worker fallback, so that all of them give the same bits.

#include <cstdint>
#include <span>
#include <vector>

#include "services/quant/quant.h"

namespace strata::expert {

struct ExpertWeights {
  quant::Matrix gate;  // (width, hidden)
  quant::Matrix up;    // (width, hidden)
  quant::Matrix down;  // (hidden, width)
};

// True when the 8-bit form of the input is all that this expert needs (both gate and up are quantized and
// numerics allow it); otherwise the float32 input must be given.
bool takes_q8_input(const ExpertWeights& expert, quant::Numerics numerics);

// Working memory of one thread, grown on first use and reused, so that the hot path allocates nothing.
class ExpertScratch {
 public:
  // Makes room for `tokens` tokens of experts up to this width.
  void reserve(uint32_t tokens, uint32_t width);

 private:
  friend void compute_expert(const ExpertWeights&, const quant::Activations&, std::span<const uint32_t>,
                             std::span<float* const>, quant::Numerics, ExpertScratch&);
  std::vector<float> gate_, up_;
  std::vector<std::byte> intermediate_q8_;
};

// For each i: y[i][0..hidden) = expert(x row tokens[i]). x must hold what takes_q8_input() says
// (Activations::ensure_q8 done). Router weights are not applied here: `parts` are summed in router order by
// the caller (combine_parts).
void compute_expert(const ExpertWeights& expert, const quant::Activations& x,
                    std::span<const uint32_t> tokens, std::span<float* const> y, quant::Numerics numerics,
                    ExpertScratch& scratch);

// y[0..hidden) = sum over k, in router order, of weights[k] * parts[k][...], by fma with one accumulator
// starting at 0.
void combine_parts(std::span<const float* const> parts, std::span<const float> weights, uint32_t hidden,
                   float* y);

}  // namespace strata::expert
