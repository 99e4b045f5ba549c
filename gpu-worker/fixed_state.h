#pragma once
// The fixed part of a state (state_layout.h) as the model knows it.

#include <cstddef>

#include "gpu-worker/state_layout.h"
#include "services/model/model_config.h"
#include "services/model/sequence_state.h"

namespace strata::gpu_worker {

// The places of a fixed part's arrays in a blob of layout.fixed_bytes(), which is aligned as floats are; in
// whatever memory it is.
model::FixedState fixed_state_in(const model::ModelConfig& config, const StateLayout& layout,
                                 std::byte* blob);

}  // namespace strata::gpu_worker
