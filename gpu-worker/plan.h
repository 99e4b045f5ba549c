#pragma once
// The memory plan: every large allocation of the worker, known before any is made, so that a start either
// fits or is refused with what is needed, what is there, and which setting to lower. The plan that was
// checked is the one that is carried out. `strata plan` makes the same plans for machines that are not there.

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/config/settings.h"
#include "services/model/model_weights.h"
#include "services/shm/board.h"

namespace strata::gpu_worker {

struct PlanItem {
  std::string use;  // label of strata_host_bytes or strata_vram_bytes
  uint64_t bytes = 0;
  std::string why;      // "4 sequences of 4096 tokens"
  std::string setting;  // what to lower; empty: nothing makes it smaller
};
uint64_t total_bytes(const std::vector<PlanItem>& items);

struct MemoryPlan {
  uint32_t sequences = 0;
  uint32_t context_tokens = 0;
  uint32_t prefill_chunk_tokens = 0;
  uint32_t window_rows_max = 0;
  uint32_t checkpoint_slots = 0;
  uint32_t experts_total = 0;  // over all trunk layers
  uint32_t slots = 0;
  uint64_t slot_bytes = 0;
  shm::BoardGeometry board = {};
  std::vector<PlanItem> set_aside = {};   // what there is and is left to others: in use already, the reserve
  std::vector<PlanItem> items = {};       // what is taken of available_bytes
  std::vector<PlanItem> host_items = {};  // beside a GPU: what its worker takes of the host's memory
  uint64_t available_bytes = 0;           // without what is set aside
  bool on_gpu = false;                    // the items are in device memory

  uint64_t total_bytes() const { return gpu_worker::total_bytes(items); }
  uint64_t left_bytes() const {
    return available_bytes > total_bytes() ? available_bytes - total_bytes() : 0;
  }
  const PlanItem& item(std::string_view use) const;
};

// kResourceExhausted with what is needed, what is there, and the setting behind the largest part that has
// one.
Status check_fits(const MemoryPlan& plan);

// What a host device keeps of the router's choices: (layers, rows, k).
inline uint64_t routed_picks_max(const model::ModelConfig& config, uint32_t rows) {
  return uint64_t{config.layers} * rows * config.experts_used;
}

// The last item, and memory.slots: experts.slots, where `automatic` is what auto means.
void add_arena(MemoryPlan& plan, const config::Settings& settings, uint64_t automatic);

// What compiled grammars and the model's tokens may take of the host's memory (constraint_maker.h).
inline constexpr uint64_t kGrammarCacheBytes = uint64_t{64} << 20;
PlanItem grammars_item(const model::ModelConfig& config);

// engine.checkpoints, or as many as a share of the available bytes holds.
uint32_t planned_checkpoints(const config::Settings& settings, uint64_t available_bytes,
                             uint64_t checkpoint_bytes);
// The item of memory.checkpoint_slots.
PlanItem checkpoints_item(const MemoryPlan& plan, uint64_t bytes);

// engine.context_tokens, or what the model's file says. kInvalidArgument: more than the model was made for.
Result<uint32_t> planned_context(const model::ModelConfig& config, const config::Settings& settings);

// The host device, whose arena is ordinary memory. `available_bytes`: sys::available_memory_bytes().
// kResourceExhausted: does not fit.
Result<MemoryPlan> make_host_plan(const model::ModelWeights& weights, const config::Settings& settings,
                                  uint32_t context_tokens, uint64_t available_bytes);
// The same before it is checked: what does not fit can be looked at.
MemoryPlan lay_out_host(const model::ModelWeights& weights, const config::Settings& settings,
                        uint32_t context_tokens, uint64_t available_bytes);

}  // namespace strata::gpu_worker
