#pragma once
// States that are wanted within a window (DeviceRow::capture). The operations that carry a state from row to
// row go through the window stretch by stretch for that (stretches.h); all others take it as a whole.

#include <cstdint>
#include <span>

#include "services/model/sequence_state.h"

namespace strata::gpu_worker::cuda {

struct StateCapture {
  uint32_t row = 0;                       // of the window: the state behind it
  uint32_t sequence = 0;                  // the row's
  const model::FixedState* to = nullptr;  // addresses in device memory
};

// As an operation of one layer gets them.
struct LayerCaptures {
  std::span<const StateCapture> all = {};  // rising rows
  uint32_t layer = 0;

  bool empty() const { return all.empty(); }
};

}  // namespace strata::gpu_worker::cuda
