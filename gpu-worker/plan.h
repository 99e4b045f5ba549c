#pragma once
// The memory plan: every large allocation of the worker, known before any is made, so that a start either
// fits or is refused with what is needed, what is there, and which setting to lower. The plan that was
// checked is the one that is carried out.

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/config/settings.h"
#include "services/model/model_weights.h"
#include "services/shm/board.h"

namespace strata::gpu_worker {

struct PlanItem {
  std::string use;  // label of strata_host_bytes
  uint64_t bytes = 0;
  std::string why;      // "4 sequences of 4096 tokens"
  std::string setting;  // what to lower
};

struct MemoryPlan {
  uint32_t sequences = 0;
  uint32_t context_tokens = 0;
  uint32_t prefill_chunk_tokens = 0;
  uint32_t window_rows_max = 0;
  uint32_t experts_total = 0;  // over all trunk layers
  uint32_t slots = 0;
  uint64_t slot_bytes = 0;
  shm::BoardGeometry board;
  std::vector<PlanItem> items;
  uint64_t available_bytes = 0;
  bool on_gpu = false;  // the items are in device memory

  uint64_t total_bytes() const;
  const PlanItem& item(std::string_view use) const;
  std::vector<std::string> lines() const;  // for the log
};

// kResourceExhausted with what is needed, what is there, and the setting behind the largest part.
Status check_fits(const MemoryPlan& plan);

// What the plan depends on beside the settings.
struct PlanInput {
  uint64_t available_bytes = 0;  // sys::available_memory_bytes()
  uint64_t sequence_bytes = 0;   // of one sequence, model::SequenceState::bytes_needed
  uint64_t slot_bytes = 0;       // model::ModelWeights::max_expert_record_bytes
  uint64_t experts_total = 0;
};
PlanInput plan_input(const model::ModelWeights& weights, uint32_t context_tokens, uint64_t available_bytes);

// engine.context_tokens, or what the model's file says. kInvalidArgument: more than the model was made for.
Result<uint32_t> planned_context(const model::ModelConfig& config, const config::Settings& settings);

// kResourceExhausted: does not fit.
Result<MemoryPlan> make_plan(const model::ModelConfig& config, const config::Settings& settings,
                             uint32_t context_tokens, const PlanInput& input);

}  // namespace strata::gpu_worker
