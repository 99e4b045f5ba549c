#include "services/expert/expert.h"

#include <algorithm>

#include "services/base/check.h"
#include "services/quant/kernels.h"

namespace strata::expert {

// More would go in several calls, and each of them reads the weights.
static_assert(ExpertPhases::kGroupTokens == quant::kTokensPerCall);

using quant::Activations;
using quant::Numerics;

namespace {

std::span<const std::byte> rows_of(const quant::Matrix& w, uint32_t begin, uint32_t end) {
  return {w.row(begin), (end - begin) * w.row_bytes};
}

}  // namespace

bool takes_q8_input(const ExpertWeights& expert, Numerics numerics) {
  return quant::needs_q8(expert.gate.type, numerics) && quant::needs_q8(expert.up.type, numerics);
}

void ExpertScratch::reserve(uint32_t tokens, uint32_t width) {
  const std::size_t group = std::min<std::size_t>(tokens, ExpertPhases::kGroupTokens);
  const auto grow = [](auto& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
  };
  grow(gate_, group * width);
  grow(up_, group * width);
  grow(intermediate_q8_, tokens * quant::q8_row_bytes(width));
}

uint64_t ExpertScratch::bytes_needed(uint32_t tokens, uint32_t width) {
  const uint64_t group = std::min(tokens, ExpertPhases::kGroupTokens);
  return 2 * group * width * sizeof(float) + tokens * quant::q8_row_bytes(width);
}

ExpertPhases::ExpertPhases(const ExpertTask& task) : task_(task) {
  CHECK(task.tokens.size() == task.y.size(), "{} tokens, {} outputs", task.tokens.size(), task.y.size());
  CHECK(task.weights.up.rows == task.width() && task.weights.down.cols == task.width(),
        "an expert of gate {}, up {}, down {}", task.width(), task.weights.up.rows, task.weights.down.cols);
}

std::span<const std::byte> ExpertPhases::gate_rows(uint32_t begin, uint32_t end) const {
  return rows_of(task_.weights.gate, begin, end);
}

std::span<const std::byte> ExpertPhases::up_rows(uint32_t begin, uint32_t end) const {
  return rows_of(task_.weights.up, begin, end);
}

std::span<const std::byte> ExpertPhases::down_rows(uint32_t begin, uint32_t end) const {
  return rows_of(task_.weights.down, begin, end);
}

void ExpertPhases::intermediate(uint32_t begin, uint32_t end, const Intermediate& h, ExpertScratch& scratch,
                                std::span<const std::byte> next) const {
  const quant::Matrix& gate = task_.weights.gate;
  const quant::Matrix& up = task_.weights.up;
  const uint32_t width = task_.width();
  scratch.reserve(static_cast<uint32_t>(task_.tokens.size()), width);
  for (std::size_t first = 0; first < task_.tokens.size(); first += kGroupTokens) {
    const std::size_t count = std::min<std::size_t>(task_.tokens.size() - first, kGroupTokens);
    const bool last = first + count == task_.tokens.size();
    const auto group = task_.tokens.subspan(first, count);
    float* gated[kGroupTokens];
    float* upped[kGroupTokens];
    for (std::size_t i = 0; i < count; ++i) {
      gated[i] = h.rows + (first + i) * h.stride;
      upped[i] = scratch.up_.data() + i * width;
    }
    quant::multiply(gate, *task_.x, group, begin, end, {gated, count}, task_.numerics,
                    rows_of(up, begin, end));
    quant::multiply(up, *task_.x, group, begin, end, {upped, count}, task_.numerics,
                    last ? next : rows_of(gate, begin, end));
    for (std::size_t i = 0; i < count; ++i)
      quant::silu_multiply(gated[i] + begin, upped[i] + begin, gated[i] + begin, end - begin);
  }
}

Activations ExpertPhases::output_input(const Intermediate& h, ExpertScratch& scratch) const {
  const uint32_t width = task_.width();
  const auto tokens = static_cast<uint32_t>(task_.tokens.size());
  if (!quant::needs_q8(task_.weights.down.type, task_.numerics))
    return Activations(h.rows, tokens, width, h.stride);
  scratch.reserve(tokens, width);
  const std::size_t stored_bytes = quant::q8_row_bytes(width);
  for (uint32_t i = 0; i < tokens; ++i) {
    quant::quantize_q8({h.rows + i * h.stride, width}, scratch.intermediate_q8_.data() + i * stored_bytes);
  }
  return Activations::from_q8(scratch.intermediate_q8_.data(), tokens, width, stored_bytes);
}

void ExpertPhases::output(uint32_t begin, uint32_t end, const Activations& input,
                          std::span<const std::byte> next) const {
  const quant::Matrix& down = task_.weights.down;
  for (uint32_t first = 0; first < task_.y.size(); first += kGroupTokens) {
    const auto count = std::min(static_cast<uint32_t>(task_.y.size()) - first, kGroupTokens);
    const bool last = first + count == task_.y.size();
    uint32_t group[kGroupTokens];
    for (uint32_t i = 0; i < count; ++i) group[i] = first + i;
    quant::multiply(down, input, {group, count}, begin, end, task_.y.subspan(first, count), task_.numerics,
                    last ? next : rows_of(down, begin, end));
  }
}

void ExpertPhases::whole(ExpertScratch& scratch, std::span<const std::byte> next) const {
  // Groups of tokens one after another: h of a group stays in the nearest cache.
  for (std::size_t first = 0; first < task_.tokens.size(); first += kGroupTokens) {
    const std::size_t count = std::min<std::size_t>(task_.tokens.size() - first, kGroupTokens);
    ExpertTask group = task_;
    group.tokens = task_.tokens.subspan(first, count);
    group.y = task_.y.subspan(first, count);
    const ExpertPhases phases(group);
    scratch.reserve(static_cast<uint32_t>(count), task_.width());
    const Intermediate h{.rows = scratch.gate_.data(), .stride = task_.width()};
    phases.intermediate(0, task_.width(), h, scratch, down_rows(0, task_.hidden()));
    const bool last = first + count == task_.tokens.size();
    phases.output(0, task_.hidden(), phases.output_input(h, scratch),
                  last ? next : gate_rows(0, task_.width()));
  }
}

void compute_expert(const ExpertWeights& expert, const Activations& x, std::span<const uint32_t> tokens,
                    std::span<float* const> y, Numerics numerics, ExpertScratch& scratch) {
  const ExpertTask task{.weights = expert, .x = &x, .tokens = tokens, .y = y, .numerics = numerics};
  ExpertPhases(task).whole(scratch);
}

void combine_parts(std::span<const float* const> parts, std::span<const float> weights, uint32_t hidden,
                   float* y) {
  CHECK(parts.size() == weights.size(), "{} parts, {} weights", parts.size(), weights.size());
  std::fill_n(y, hidden, 0.0f);
  for (std::size_t k = 0; k < parts.size(); ++k) quant::add_scaled_f32(weights[k], parts[k], y, hidden);
}

}  // namespace strata::expert
