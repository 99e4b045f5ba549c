#include "services/model/sequence_state.h"

#include <algorithm>

namespace strata::model {
namespace {

// Floats of each part; the constructor and bytes_needed() must not disagree.
struct PartSizes {
  std::size_t kv = 0, raw = 0, pooled = 0;  // per attention layer
  std::size_t s = 0, delta_conv = 0;        // per recurrent layer
  std::size_t ngram_conv = 0, ngram_context = 0;
};

PartSizes part_sizes(const ModelConfig& config, uint32_t layer, uint32_t capacity) {
  PartSizes sizes;
  if (config.layer_kinds[layer] == LayerKind::kAttention) {
    sizes.kv = std::size_t{capacity} * config.kv_heads * config.head_dim;
    if (const uint32_t block = config.block_tokens[layer]; block > 0) {
      sizes.raw = std::size_t{block - 1} * config.indexer_dim;
      sizes.pooled = std::size_t{capacity / block} * config.indexer_dim;
    }
  } else {
    sizes.s = std::size_t{config.value_heads} * config.state_dim * config.state_dim;
    sizes.delta_conv = std::size_t{config.conv_taps - 1} * config.qkv_dim();
  }
  return sizes;
}

PartSizes ngram_sizes(const ModelConfig& config) {
  PartSizes sizes;
  if (config.ngram_layer >= 0) {
    sizes.ngram_conv = std::size_t{config.ngram_history()} * config.stream_dim();
    sizes.ngram_context = config.ngram_size - 1;
  }
  return sizes;
}

}  // namespace

SequenceState::SequenceState(const ModelConfig& config, uint32_t capacity_tokens)
    : capacity_(capacity_tokens),
      attention(config.layers),
      delta(config.layers),
      ngram_conv(ngram_sizes(config).ngram_conv),
      ngram_context(ngram_sizes(config).ngram_context, config.ngram_cut_token),
      ngram_cut_token_(config.ngram_cut_token) {
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const PartSizes sizes = part_sizes(config, layer, capacity_tokens);
    attention[layer].k.resize(sizes.kv);
    attention[layer].v.resize(sizes.kv);
    attention[layer].raw.resize(sizes.raw);
    attention[layer].pooled.resize(sizes.pooled);
    delta[layer].s.resize(sizes.s);
    delta[layer].conv.resize(sizes.delta_conv);
  }
}

void SequenceState::reset() {
  position_ = 0;
  // Keys, values and block keys count only below the position, so what they hold does not matter.
  for (DeltaNetState& layer : delta) {
    std::fill(layer.s.begin(), layer.s.end(), 0.0f);
    std::fill(layer.conv.begin(), layer.conv.end(), 0.0f);
  }
  std::fill(ngram_conv.begin(), ngram_conv.end(), 0.0f);
  std::fill(ngram_context.begin(), ngram_context.end(), ngram_cut_token_);
}

std::size_t SequenceState::bytes() const {
  std::size_t floats = ngram_conv.size();
  for (const AttentionState& layer : attention) {
    floats += layer.k.size() + layer.v.size() + layer.raw.size() + layer.pooled.size();
  }
  for (const DeltaNetState& layer : delta) floats += layer.s.size() + layer.conv.size();
  return floats * sizeof(float) + ngram_context.size() * sizeof(int32_t);
}

std::size_t SequenceState::bytes_needed(const ModelConfig& config, uint32_t capacity_tokens) {
  std::size_t floats = ngram_sizes(config).ngram_conv;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const PartSizes sizes = part_sizes(config, layer, capacity_tokens);
    floats += 2 * sizes.kv + sizes.raw + sizes.pooled + sizes.s + sizes.delta_conv;
  }
  return floats * sizeof(float) + ngram_sizes(config).ngram_context * sizeof(int32_t);
}

}  // namespace strata::model
