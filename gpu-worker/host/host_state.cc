#include "gpu-worker/host/host_state.h"

#include "gpu-worker/state_names.h"

namespace strata::gpu_worker {
namespace {

// visit(name, vector, unit_tokens, values of a unit), in the order that all devices keep.
template <class State, class Visit>
void for_each_array(const model::ModelConfig& config, State& state, const Visit& visit) {
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (config.layer_kinds[layer] == model::LayerKind::kRecurrent) {
      visit(state_name::kDelta, layer, state.delta[layer].s, 0u, 0u);
    }
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (config.layer_kinds[layer] == model::LayerKind::kRecurrent) {
      visit(state_name::kDeltaInputs, layer, state.delta[layer].conv, 0u, 0u);
    }
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (config.layer_kinds[layer] == model::LayerKind::kRecurrent) continue;
    auto& attention = state.attention[layer];
    const uint32_t row = config.kv_heads * config.head_dim, block = config.block_tokens[layer];
    visit(state_name::kKeys, layer, attention.k, 1u, row);
    visit(state_name::kValues, layer, attention.v, 1u, row);
    if (block == 0) continue;
    visit(state_name::kBlockKeys, layer, attention.pooled, block, config.indexer_dim);
    visit(state_name::kBlockTail, layer, attention.raw, 0u, 0u);
  }
  if (config.ngram_layer >= 0) {
    const auto layer = static_cast<uint32_t>(config.ngram_layer);
    visit(state_name::kNgramInputs, layer, state.ngram_conv, 0u, 0u);
    visit(state_name::kNgramContext, layer, state.ngram_context, 0u, 0u);
  }
}

}  // namespace

std::vector<StateArray> host_state_arrays(const model::ModelConfig& config,
                                          const model::SequenceState& state) {
  std::vector<StateArray> arrays;
  for_each_array(
      config, state,
      [&](const char* name, uint32_t layer, const auto& values, uint32_t unit_tokens, uint32_t unit) {
        const uint64_t size = sizeof(values[0]);
        arrays.push_back({state_name::of(name, layer), values.size() * size, unit_tokens, unit * size});
      });
  return arrays;
}

std::vector<std::byte*> host_state_pointers(const model::ModelConfig& config, model::SequenceState& state) {
  std::vector<std::byte*> pointers;
  for_each_array(config, state, [&](const char*, uint32_t, auto& values, uint32_t, uint32_t) {
    pointers.push_back(reinterpret_cast<std::byte*>(values.data()));
  });
  return pointers;
}

}  // namespace strata::gpu_worker
