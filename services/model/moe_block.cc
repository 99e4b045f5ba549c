#include "services/model/moe_block.h"

#include <algorithm>

#include "services/base/check.h"
#include "services/model/row_kernels.h"
#include "services/model/window.h"

namespace strata::model {
namespace {

void softmax(std::span<float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  row_kernels().exp_below(logits.data(), largest, logits.size());
  const float total = quant::sum_f32(logits.data(), logits.size());
  for (float& value : logits) value = value / total;
}

void renormalize(std::span<float> weights) {
  float chosen = 0;
  for (const float p : weights) chosen += p;
  for (float& p : weights) p = p / chosen;
}

}  // namespace

void route(std::span<float> logits, std::span<uint16_t> ids, std::span<float> weights) {
  softmax(logits);
  // Insertion into the short list of the best. NaN compares false with everything, so even then the ids are
  // distinct and valid.
  std::size_t filled = 0;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const float p = logits[e];
    if (filled == ids.size() && !(p > weights[filled - 1])) continue;
    std::size_t at = filled < ids.size() ? filled++ : filled - 1;
    for (; at > 0 && p > weights[at - 1]; --at) {
      ids[at] = ids[at - 1];
      weights[at] = weights[at - 1];
    }
    ids[at] = static_cast<uint16_t>(e);
    weights[at] = p;
  }
  renormalize(weights);
}

void weigh_chosen(std::span<float> logits, std::span<const uint16_t> ids, std::span<float> weights) {
  softmax(logits);
  for (std::size_t i = 0; i < ids.size(); ++i) weights[i] = logits[ids[i]];
  if (std::ranges::all_of(weights, [](float p) { return p == 0; })) std::ranges::fill(weights, 1.0f);
  renormalize(weights);
}

MoeBlock::MoeBlock(const ModelConfig& config, uint32_t experts_max, quant::Numerics numerics,
                   uint32_t rows_max, Parallel& parallel)
    : config_(config),
      numerics_(numerics),
      parallel_(parallel),
      logits_(std::size_t{rows_max} * experts_max),
      ids_(std::size_t{rows_max} * config.experts_used),
      weights_(std::size_t{rows_max} * config.experts_used),
      gate_(std::size_t{rows_max} * config.shared_width),
      up_(std::size_t{rows_max} * config.shared_width),
      shared_(std::size_t{rows_max} * config.hidden),
      shared_gate_(rows_max) {}

uint64_t MoeBlock::row_bytes(const ModelConfig& config, uint32_t experts_max) {
  const uint64_t floats =
      uint64_t{experts_max} + config.experts_used + 2 * uint64_t{config.shared_width} + config.hidden + 1;
  return floats * sizeof(float) + config.experts_used * sizeof(uint16_t);
}

void MoeBlock::route_rows(const MoeWeights& weights, quant::Activations& input,
                          std::span<const uint16_t> chosen) {
  const uint32_t experts = weights.router.rows, used = config_.experts_used;
  multiply_all(parallel_,
               {{&weights.router, &input, logits_.data(), experts, quant::Numerics::kExact},
                {&weights.shared_router, &input, shared_gate_.data(), 1, quant::Numerics::kExact}});
  parallel_.run(input.tokens(), 8, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      const std::span logits = std::span(logits_).subspan(std::size_t{row} * experts, experts);
      const std::span ids = std::span(ids_).subspan(std::size_t{row} * used, used);
      const std::span row_weights = std::span(weights_).subspan(std::size_t{row} * used, used);
      if (chosen.empty()) {
        route(logits, ids, row_weights);
      } else {
        std::ranges::copy(chosen.subspan(std::size_t{row} * used, used), ids.begin());
        weigh_chosen(logits, ids, row_weights);
      }
    }
  });
}

void MoeBlock::run(const MoeWeights& weights, uint32_t layer, quant::Activations& input, MoeExecutor& experts,
                   float* output) {
  const uint32_t rows = input.tokens(), used = config_.experts_used, hidden = config_.hidden;
  // Before begin(): from then on the executor may read the input on other threads.
  for (const Matrix* matrix :
       {&weights.experts.gate, &weights.experts.up, &weights.shared.gate, &weights.shared.up}) {
    if (quant::needs_q8(matrix->type, numerics_)) input.ensure_q8();
  }
  experts.begin({.layer = layer, .tokens = rows, .top_k = used, .input = &input, .experts = ids_.data()});
  run_shared(weights, input);
  const std::span<const float* const> parts = experts.finish();
  CHECK(parts.size() == std::size_t{rows} * used, "{} parts of {} tokens with {} experts", parts.size(), rows,
        used);
  parallel_.run(rows, 2, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      const std::size_t pair = std::size_t{row} * used, at = std::size_t{row} * hidden;
      expert::combine_parts(parts.subspan(pair, used), std::span<const float>(weights_).subspan(pair, used),
                            hidden, output + at);
      quant::add_scaled_f32(quant::sigmoid_f32(shared_gate_[row]), shared_.data() + at, output + at, hidden);
    }
  });
}

// The expression of one expert (docs/numerics.md), split over the threads by weight rows.
void MoeBlock::run_shared(const MoeWeights& weights, quant::Activations& input) {
  const uint32_t rows = input.tokens(), width = config_.shared_width;
  multiply_all(parallel_, {{&weights.shared.gate, &input, gate_.data(), width, numerics_},
                           {&weights.shared.up, &input, up_.data(), width, numerics_}});
  quant::silu_multiply(gate_.data(), up_.data(), gate_.data(), std::size_t{rows} * width);
  quant::Activations intermediate(gate_.data(), rows, width, width);
  multiply_all(parallel_, {{&weights.shared.down, &intermediate, shared_.data(), config_.hidden, numerics_}});
}

}  // namespace strata::model
