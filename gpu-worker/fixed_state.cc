#include "gpu-worker/fixed_state.h"

#include <algorithm>

#include "gpu-worker/state_names.h"

namespace strata::gpu_worker {

model::FixedState fixed_state_in(const model::ModelConfig& config, const StateLayout& layout,
                                 std::byte* blob) {
  const auto place_of = [&](const char* name, uint32_t layer) {
    const auto part =
        std::ranges::find(layout.fixed_parts(), state_name::of(name, layer), &StateLayout::Part::name);
    return part == layout.fixed_parts().end() ? nullptr : blob + part->offset;
  };
  const auto floats_of = [&](const char* name, uint32_t layer) {
    return reinterpret_cast<float*>(place_of(name, layer));
  };
  model::FixedState state;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    state.layers.push_back({.s = floats_of(state_name::kDelta, layer),
                            .conv = floats_of(state_name::kDeltaInputs, layer),
                            .raw = floats_of(state_name::kBlockTail, layer)});
  }
  if (config.ngram_layer >= 0) {
    const auto layer = static_cast<uint32_t>(config.ngram_layer);
    state.ngram_conv = floats_of(state_name::kNgramInputs, layer);
    state.ngram_context = reinterpret_cast<int32_t*>(place_of(state_name::kNgramContext, layer));
  }
  return state;
}

}  // namespace strata::gpu_worker
