#pragma once
// What a window needs to know from the host, in one block that is copied to the device at its beginning. The
// host fills the page-locked twin of the block, which is cut in the same way.

#include <compare>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/placer.h"
#include "gpu-worker/cuda/sampling.h"
#include "services/model/model_config.h"

namespace strata::gpu_worker::cuda {

// All that shapes the launches of a window.
struct WindowShape {
  uint32_t rows = 0;
  uint32_t segments = 0;
  uint32_t logit_rows = 0;
  // Experts that are not resident are copied to the device, or the boards get them, or some of each.
  bool streams_experts = false;
  bool uses_boards = true;

  auto operator<=>(const WindowShape&) const = default;
};

struct WindowInput {
  RowInfo* rows = nullptr;  // (rows); token is the row's own number, which is its row of `embedded`
  SegmentInfo* segments = nullptr;
  float* turns = nullptr;          // (rows, 2, pairs)
  float* block_turns = nullptr;    // (rows, 2, pairs)
  float* embedded = nullptr;       // (rows, H) token embeddings
  float* ngram = nullptr;          // (rows, H) rows of the n-gram table; only with an n-gram layer
  uint32_t* chosen = nullptr;      // (logit_rows) rows that want logits
  SampleRow* samples = nullptr;    // (logit_rows)
  uint16_t* forced_ids = nullptr;  // (layers, rows, k) only with synthetic routing
};

WindowInput place_input(const model::ModelConfig& config, const WindowShape& shape, bool forced_routing,
                        Placer& placer);

}  // namespace strata::gpu_worker::cuda
