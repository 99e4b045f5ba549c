#pragma once
// Everything that lies in the device's one block of memory (the arena is a block of its own, which other
// processes map), and how large its page-locked buffers are. The planner counts with the functions that the
// device cuts with.

#include <vector>

#include "gpu-worker/cuda/device_model.h"
#include "gpu-worker/cuda/device_state.h"
#include "gpu-worker/cuda/vram_plan.h"
#include "gpu-worker/cuda/window_buffers.h"
#include "gpu-worker/cuda/window_input.h"

namespace strata::gpu_worker::cuda {

struct DeviceLayout {
  DeviceModel model;
  DeviceState state;
  StateLayout kept;                  // of one sequence's state
  std::byte* checkpoints = nullptr;  // (checkpoint_slots, kept.fixed_bytes())
  WindowBuffers buffers;
  std::byte* staging = nullptr;            // (staging_slots, slot_bytes)
  uint32_t* places_with_boards = nullptr;  // (layers, experts_max)
  uint32_t* places_with_copies = nullptr;  // likewise
  BoardTable* boards = nullptr;
  BoardTickets* tickets = nullptr;
  std::byte* input = nullptr;  // of the largest window

  // Bytes of the parts; the input is one of the buffers.
  struct Bytes {
    uint64_t weights = 0, state = 0, checkpoints = 0, buffers = 0, staging = 0, tables = 0;
  };
  Bytes bytes;
};

// Places all of it; `uploads`, if not null, gets the weights that have to be copied.
DeviceLayout lay_out(const model::ModelWeights& weights, const VramPlan& plan, Placer& placer,
                     std::vector<Upload>* uploads);

WindowShape largest_window(const WindowLimits& limits);

// Changes of logits that windows can bring to the device; a request with more of them is sampled on the host.
inline constexpr uint32_t kLogitChangesMax = 65536;

// Page-locked buffers, in elements.
struct PinnedCounts {
  uint64_t input_bytes = 0;
  uint64_t ids = 0;      // (layers, rows, k) uint16_t
  uint64_t results = 0;  // (logit_rows) SampleResult
  uint64_t changes = 0;  // LogitChange
  uint64_t masks = 0;    // uint32_t
  uint64_t marks = 0;    // uint64_t
  uint64_t logits = 0;   // float of one row
  uint64_t states = 0;   // bytes that states are copied through
  uint64_t bytes() const;
};
PinnedCounts pinned_counts(const model::ModelConfig& config, const VramPlan& plan);

}  // namespace strata::gpu_worker::cuda
