#include "gpu-worker/cuda/device_state.h"

#include <algorithm>

namespace strata::gpu_worker::cuda {
namespace {

AttentionCache place_cache(const AttentionShape& shape, uint32_t sequences, uint32_t capacity,
                           KvFormat format, Placer& placer) {
  const auto even = [](uint64_t count, uint64_t unit) { return (count + unit - 1) / unit * unit; };
  AttentionCache cache{.format = format, .capacity = capacity};
  cache.kv_stride = even(kv_bytes(format, shape, capacity), 16);
  cache.scales_stride = even(kv_scale_floats(format, shape, capacity), 4);
  cache.k = placer.take<std::byte>(sequences * cache.kv_stride);
  cache.v = placer.take<std::byte>(sequences * cache.kv_stride);
  cache.k_scales = placer.take<float>(sequences * cache.scales_stride);
  cache.v_scales = placer.take<float>(sequences * cache.scales_stride);
  if (shape.block_tokens == 0) return cache;
  cache.pooled_stride = even(uint64_t{capacity / shape.block_tokens} * shape.indexer_dim, 4);
  cache.raw_stride = even(uint64_t{shape.block_tokens - 1} * shape.indexer_dim, 4);
  cache.pooled = placer.take<float>(sequences * cache.pooled_stride);
  cache.raw = placer.take<float>(sequences * cache.raw_stride);
  return cache;
}

}  // namespace

AttentionShape attention_shape(const model::ModelConfig& config, uint32_t layer) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .rope_pairs = config.rope.dims / 2,
          .block_tokens = config.block_tokens[layer],
          .indexer_heads = config.indexer_heads,
          .indexer_dim = config.indexer_dim,
          .top_k_tokens = config.indexer_top_k,
          .eps = config.eps};
}

DeviceState place_state(const model::ModelConfig& config, uint32_t sequences, uint32_t capacity_tokens,
                        KvFormat format, Placer& placer) {
  DeviceState state;
  const auto recurrent =
      static_cast<uint64_t>(std::ranges::count(config.layer_kinds, model::LayerKind::kRecurrent));
  const uint64_t per_layer = uint64_t{config.value_heads} * config.state_dim * config.state_dim;
  const uint64_t history_per_layer = uint64_t{config.conv_taps - 1} * config.qkv_dim();
  state.delta_stride = recurrent * per_layer;
  state.delta_history_stride = recurrent * history_per_layer;
  auto* delta = placer.take<float>(sequences * state.delta_stride);
  auto* history = placer.take<float>(sequences * state.delta_history_stride);
  const auto cleared = [&](float* base, uint64_t stride) {
    state.cleared.push_back({reinterpret_cast<std::byte*>(base), stride * sizeof(float)});
  };
  cleared(delta, state.delta_stride);
  cleared(history, state.delta_history_stride);
  uint64_t index = 0;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    AttentionCache cache;
    float* layer_delta = nullptr;
    float* layer_history = nullptr;
    if (config.layer_kinds[layer] == model::LayerKind::kRecurrent) {
      layer_delta = delta + index * per_layer;
      layer_history = history + index * history_per_layer;
      ++index;
    } else {
      cache = place_cache(attention_shape(config, layer), sequences, capacity_tokens, format, placer);
    }
    state.attention.push_back(cache);
    state.delta.push_back(layer_delta);
    state.delta_history.push_back(layer_history);
  }
  if (config.ngram_layer >= 0) {
    state.ngram_history_stride = uint64_t{config.ngram_history()} * config.stream_dim();
    state.ngram_history = placer.take<float>(sequences * state.ngram_history_stride);
    cleared(state.ngram_history, state.ngram_history_stride);
  }
  return state;
}

}  // namespace strata::gpu_worker::cuda
