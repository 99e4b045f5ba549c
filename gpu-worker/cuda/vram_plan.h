#pragma once
// The memory plan of the cuda device: every allocation in device memory, known before the first is made
// (gpu-worker/plan.h has the idea). Sizes come from the same code that cuts the memory (device_layout.h).
// Built without CUDA, so that `strata plan` plans for any card on any machine.

#include "gpu-worker/cuda/kv_cache.h"
#include "gpu-worker/cuda/window_buffers.h"
#include "gpu-worker/plan.h"

namespace strata::gpu_worker::cuda {

struct VramPlan {
  MemoryPlan memory;  // items: weights, kv, checkpoints, buffers, staging, tables, arena
  KvFormat kv = KvFormat::kF16;
  WindowLimits limits;
  uint32_t experts_max = 0;      // of a layer
  bool forced_routing = false;   // engine.synthetic_routing
  uint32_t stream_rows_min = 0;  // windows of so many rows copy experts that are not resident
  uint32_t batch_experts = 0;    // of them in one batch
  uint32_t ring_batches = 0;
  uint32_t staging_slots() const { return batch_experts * ring_batches; }
};

// What the card has, asked after the CUDA context exists.
struct VramInput {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  bool chunks_delta = false;  // can_chunk_delta_net() for this model
};

// What of the card is whose: device.vram_budget acts like a card of that size, on which is in use already
// what is in use now.
struct VramShares {
  uint64_t in_use = 0;
  uint64_t beyond_budget = 0;
  uint64_t reserve = 0;  // of device.vram_reserve, what lies within the budget
  uint64_t available = 0;
};
VramShares vram_shares(const config::Settings& settings, const VramInput& vram);

// kResourceExhausted: does not fit; says what is needed, what is there, and which setting to lower.
// kUnimplemented: a model or a setting that the cuda device does not know.
Result<VramPlan> make_vram_plan(const model::ModelWeights& weights, const config::Settings& settings,
                                uint32_t context_tokens, const VramInput& vram);
// The same before it is checked against the memory: what does not fit can be looked at.
Result<VramPlan> lay_out_vram(const model::ModelWeights& weights, const config::Settings& settings,
                              uint32_t context_tokens, const VramInput& vram);

}  // namespace strata::gpu_worker::cuda
