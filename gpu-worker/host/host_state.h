#pragma once
// The arrays of a host sequence's state by the names of gpu-worker/state_layout.h.

#include <cstddef>
#include <vector>

#include "gpu-worker/state_layout.h"
#include "services/model/sequence_state.h"

namespace strata::gpu_worker {

std::vector<StateArray> host_state_arrays(const model::ModelConfig& config,
                                          const model::SequenceState& state);
// In the same order.
std::vector<std::byte*> host_state_pointers(const model::ModelConfig& config, model::SequenceState& state);

}  // namespace strata::gpu_worker
