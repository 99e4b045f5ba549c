#include "gpu-worker/cuda/device_layout.h"

#include <algorithm>
#include <utility>

#include "gpu-worker/cuda/stage_marks.h"
#include "gpu-worker/cuda/state_staging.h"

namespace strata::gpu_worker::cuda {

WindowShape largest_window(const WindowLimits& limits) {
  return {.rows = limits.rows,
          .segments = limits.segments,
          .logit_rows = limits.logit_rows,
          .streams_experts = true,
          .uses_boards = true};
}

DeviceLayout lay_out(const model::ModelWeights& weights, const VramPlan& plan, Placer& placer,
                     std::vector<Upload>* uploads) {
  const MemoryPlan& memory = plan.memory;
  const model::ModelConfig& config = weights.config;
  uint64_t placed = placer.used_bytes();
  const auto part = [&] { return placer.used_bytes() - std::exchange(placed, placer.used_bytes()); };
  DeviceLayout layout;
  layout.model = place_model(weights, placer, uploads);
  layout.bytes.weights = part();
  layout.state = place_state(config, memory.sequences, memory.context_tokens, plan.kv, placer);
  layout.bytes.state = part();
  layout.kept = StateLayout(state_arrays(config, memory.context_tokens, plan.kv));
  layout.checkpoints = placer.take<std::byte>(memory.checkpoint_slots * layout.kept.fixed_bytes());
  layout.bytes.checkpoints = part();
  layout.buffers = place_buffers(weights, plan.limits, placer);
  layout.input = placer.take<std::byte>(pinned_counts(config, plan).input_bytes);
  layout.bytes.buffers = part();
  layout.staging = placer.take<std::byte>(plan.staging_slots() * memory.slot_bytes);
  layout.bytes.staging = part();
  const uint64_t table = uint64_t{config.layers} * plan.experts_max;
  layout.places_with_boards = placer.take<uint32_t>(table);
  layout.places_with_copies = placer.take<uint32_t>(table);
  layout.boards = placer.take<BoardTable>(1);
  layout.tickets = placer.take<BoardTickets>(1);
  layout.bytes.tables = part();
  return layout;
}

uint64_t PinnedCounts::bytes() const {
  return input_bytes + ids * sizeof(uint16_t) + results * sizeof(SampleResult) +
         changes * sizeof(LogitChange) + masks * sizeof(uint32_t) + marks * sizeof(uint64_t) +
         logits * sizeof(float) + states;
}

PinnedCounts pinned_counts(const model::ModelConfig& config, const VramPlan& plan) {
  Placer counting;
  place_input(config, largest_window(plan.limits), plan.forced_routing, counting);
  return {.input_bytes = counting.used_bytes(),
          .ids = uint64_t{config.layers} * plan.limits.rows * config.experts_used,
          .results = plan.limits.logit_rows,
          .changes = kLogitChangesMax,
          .masks = uint64_t{plan.limits.logit_rows} * model::mask_words(config.vocab),
          .marks = StageMarks::marks_max(config.layers),
          .logits = config.vocab,
          .states = staging_bytes(StateLayout(state_arrays(config, plan.memory.context_tokens, plan.kv)))};
}

}  // namespace strata::gpu_worker::cuda
