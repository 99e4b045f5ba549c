#include "services/model/moe_executor.h"

#include <algorithm>

namespace strata::model {

LocalExperts::LocalExperts(const ModelWeights& weights, quant::Numerics numerics)
    : weights_(weights), numerics_(numerics) {}

// Pairs are taken expert by expert, so that each expert's weights are read once for all its tokens.
void LocalExperts::begin(const RoutedLayer& routed) {
  const LayerExperts& experts = weights_.layers[routed.layer].moe.experts;
  const std::size_t pairs = std::size_t{routed.tokens} * routed.top_k;
  parts_.resize(std::max(parts_.size(), pairs * experts.hidden));
  rows_.resize(pairs);
  order_.resize(pairs);
  tokens_.resize(pairs);
  outputs_.resize(pairs);

  // Counting sort by expert; stable, so tokens stay ascending.
  starts_.assign(experts.count + 1, 0);
  for (std::size_t pair = 0; pair < pairs; ++pair) ++starts_[routed.experts[pair] + 1u];
  for (uint32_t e = 0; e < experts.count; ++e) starts_[e + 1] += starts_[e];
  next_.assign(starts_.begin(), starts_.end() - 1);
  for (std::size_t pair = 0; pair < pairs; ++pair)
    order_[next_[routed.experts[pair]]++] = static_cast<uint32_t>(pair);

  for (std::size_t i = 0; i < pairs; ++i) {
    float* part = parts_.data() + std::size_t{order_[i]} * experts.hidden;
    tokens_[i] = order_[i] / routed.top_k;
    outputs_[i] = part;
    rows_[order_[i]] = part;
  }
  for (uint32_t e = 0; e < experts.count; ++e) {
    const std::size_t count = starts_[e + 1] - starts_[e];
    if (count == 0) continue;
    expert::compute_expert(experts.expert(e), *routed.input, std::span(tokens_).subspan(starts_[e], count),
                           std::span(outputs_).subspan(starts_[e], count), numerics_, scratch_);
  }
}

std::span<const float* const> LocalExperts::finish() { return rows_; }

}  // namespace strata::model
