#include "services/expert/expert.h"

#include <algorithm>

#include "services/base/check.h"

namespace strata::expert {

using quant::Activations;
using quant::Numerics;

namespace {

// Tokens that go through the three products together. The weights are read once per group; more tokens would
// only grow the scratch.
constexpr std::size_t kGroupTokens = 32;

}  // namespace

bool takes_q8_input(const ExpertWeights& expert, Numerics numerics) {
  return quant::needs_q8(expert.gate.type, numerics) && quant::needs_q8(expert.up.type, numerics);
}

void ExpertScratch::reserve(uint32_t tokens, uint32_t width) {
  const std::size_t group = std::min<std::size_t>(tokens, kGroupTokens);
  const auto grow = [](auto& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
  };
  grow(gate_, group * width);
  grow(up_, group * width);
  grow(intermediate_q8_, group * quant::q8_row_bytes(width));
}

void compute_expert(const ExpertWeights& expert, const Activations& x, std::span<const uint32_t> tokens,
                    std::span<float* const> y, Numerics numerics, ExpertScratch& scratch) {
  CHECK(tokens.size() == y.size(), "{} tokens, {} outputs", tokens.size(), y.size());
  const uint32_t width = expert.gate.rows;
  CHECK(expert.up.rows == width && expert.down.cols == width, "an expert of gate {}, up {}, down {}", width,
        expert.up.rows, expert.down.cols);
  scratch.reserve(static_cast<uint32_t>(tokens.size()), width);
  const bool down_q8 = quant::needs_q8(expert.down.type, numerics);
  for (std::size_t first = 0; first < tokens.size(); first += kGroupTokens) {
    const std::size_t count = std::min(tokens.size() - first, kGroupTokens);
    const auto group = tokens.subspan(first, count);
    float* gate[kGroupTokens];
    float* up[kGroupTokens];
    for (std::size_t i = 0; i < count; ++i) {
      gate[i] = scratch.gate_.data() + i * width;
      up[i] = scratch.up_.data() + i * width;
    }
    quant::multiply(expert.gate, x, group, 0, width, {gate, count}, numerics);
    quant::multiply(expert.up, x, group, 0, width, {up, count}, numerics);
    const std::size_t stored_bytes = quant::q8_row_bytes(width);
    for (std::size_t i = 0; i < count; ++i) {
      quant::silu_multiply(gate[i], up[i], gate[i], width);
      if (down_q8) quant::quantize_q8({gate[i], width}, scratch.intermediate_q8_.data() + i * stored_bytes);
    }
    const auto rows = static_cast<uint32_t>(count);
    const Activations intermediate =
        down_q8 ? Activations::from_q8(scratch.intermediate_q8_.data(), rows, width, stored_bytes)
                : Activations(scratch.gate_.data(), rows, width, width);
    uint32_t all[kGroupTokens];
    for (uint32_t i = 0; i < rows; ++i) all[i] = i;
    quant::multiply(expert.down, intermediate, {all, count}, 0, expert.down.rows, y.subspan(first, count),
                    numerics);
  }
}

void combine_parts(std::span<const float* const> parts, std::span<const float> weights, uint32_t hidden,
                   float* y) {
  CHECK(parts.size() == weights.size(), "{} parts, {} weights", parts.size(), weights.size());
  std::fill_n(y, hidden, 0.0f);
  for (std::size_t k = 0; k < parts.size(); ++k) quant::add_scaled_f32(weights[k], parts[k], y, hidden);
}

}  // namespace strata::expert
