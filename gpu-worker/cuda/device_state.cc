#include "gpu-worker/cuda/device_state.h"

#include <algorithm>

#include "gpu-worker/state_names.h"

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

uint64_t delta_floats(const model::ModelConfig& config) {
  return uint64_t{config.value_heads} * config.state_dim * config.state_dim;
}
uint64_t delta_input_floats(const model::ModelConfig& config) {
  return uint64_t{config.conv_taps - 1} * config.qkv_dim();
}

// What an array is, and where it is for one sequence; the host's order (gpu-worker/host/host_state.cc).
struct KnownArray {
  StateArray array;
  std::byte* at = nullptr;
};

std::vector<KnownArray> known_arrays(const model::ModelConfig& config, uint32_t capacity, KvFormat format,
                                     const DeviceState* state, uint32_t sequence, int32_t* ngram_context) {
  std::vector<KnownArray> arrays;
  const auto add = [&](const char* name, uint32_t layer, uint64_t bytes, uint32_t unit_tokens,
                       uint64_t unit_bytes, auto* base, uint64_t stride) {
    auto* at = base == nullptr ? nullptr : reinterpret_cast<std::byte*>(base + sequence * stride);
    arrays.push_back({{state_name::of(name, layer), bytes, unit_tokens, unit_bytes}, at});
  };
  const auto recurrent = [&](uint32_t layer) {
    return config.layer_kinds[layer] == model::LayerKind::kRecurrent;
  };
  static const DeviceState kNowhere;
  const DeviceState& from = state == nullptr ? kNowhere : *state;
  const auto of_layer = [](const std::vector<float*>& bases, uint32_t layer) {
    return bases.empty() ? nullptr : bases[layer];
  };
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (recurrent(layer))
      add(state_name::kDelta, layer, delta_floats(config) * sizeof(float), 0, 0, of_layer(from.delta, layer),
          from.delta_stride);
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (recurrent(layer))
      add(state_name::kDeltaInputs, layer, delta_input_floats(config) * sizeof(float), 0, 0,
          of_layer(from.delta_history, layer), from.delta_history_stride);
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (recurrent(layer)) continue;
    const AttentionShape shape = attention_shape(config, layer);
    const AttentionCache cache = from.attention.empty() ? AttentionCache{} : from.attention[layer];
    const uint64_t row = kv_bytes(format, shape, 1),
                   scales = kv_scale_floats(format, shape, 1) * sizeof(float);
    add(state_name::kKeys, layer, capacity * row, 1, row, cache.k, cache.kv_stride);
    add(state_name::kValues, layer, capacity * row, 1, row, cache.v, cache.kv_stride);
    if (scales > 0) {
      add(state_name::kKeyScales, layer, capacity * scales, 1, scales, cache.k_scales, cache.scales_stride);
      add(state_name::kValueScales, layer, capacity * scales, 1, scales, cache.v_scales, cache.scales_stride);
    }
    const uint32_t block = shape.block_tokens;
    if (block == 0) continue;
    const uint64_t key = shape.indexer_dim * sizeof(float);
    add(state_name::kBlockKeys, layer, capacity / block * key, block, key, cache.pooled, cache.pooled_stride);
    add(state_name::kBlockTail, layer, (block - 1) * key, 0, 0, cache.raw, cache.raw_stride);
  }
  if (config.ngram_layer >= 0) {
    const auto layer = static_cast<uint32_t>(config.ngram_layer);
    const uint64_t inputs = uint64_t{config.ngram_history()} * config.stream_dim() * sizeof(float);
    add(state_name::kNgramInputs, layer, inputs, 0, 0, from.ngram_history, from.ngram_history_stride);
    add(state_name::kNgramContext, layer, (config.ngram_size - 1) * sizeof(int32_t), 0, 0, ngram_context, 0);
  }
  return arrays;
}

}  // namespace

std::vector<StateArray> state_arrays(const model::ModelConfig& config, uint32_t capacity_tokens,
                                     KvFormat format) {
  std::vector<StateArray> arrays;
  for (KnownArray& known : known_arrays(config, capacity_tokens, format, nullptr, 0, nullptr))
    arrays.push_back(std::move(known.array));
  return arrays;
}

std::vector<std::byte*> state_pointers(const model::ModelConfig& config, const DeviceState& state,
                                       uint32_t sequence, int32_t* ngram_context) {
  std::vector<std::byte*> pointers;
  for (const KnownArray& known : known_arrays(config, 0, state.kv_format, &state, sequence, ngram_context))
    pointers.push_back(known.at);
  return pointers;
}

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
  state.kv_format = format;
  const auto recurrent =
      static_cast<uint64_t>(std::ranges::count(config.layer_kinds, model::LayerKind::kRecurrent));
  const uint64_t per_layer = delta_floats(config);
  const uint64_t history_per_layer = delta_input_floats(config);
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
