#include "gpu-worker/plan.h"

#include <algorithm>

#include "services/base/check.h"
#include "services/expert/thread_plan.h"
#include "services/model/sequence_state.h"
#include "services/shm/arena.h"

namespace strata::gpu_worker {

namespace {

constexpr uint32_t kHostChunkTokens = 128;  // engine.prefill_chunk_tokens: auto
// Share of all experts that `auto` makes room for on the host device, where the arena is ordinary memory:
// enough for the few that do most of the work.
constexpr uint64_t kAutoSlotsPercent = 25;
// `auto` leaves this share of the available memory to the page cache, which holds the experts that miss.
constexpr uint64_t kAutoArenaShareMax = 2;  // at most one half

double mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Floats that one row of a window needs in the forward pass and the expert dispatch: the streams and their
// mixed copies, the widest projections, and one output per routed expert. An upper estimate; the buffers are
// small beside the rest.
uint64_t row_floats(const model::ModelConfig& config) {
  uint64_t streams = uint64_t{config.stream_dim()} * 4;
  uint64_t delta = 2 * uint64_t{config.qkv_dim()} + 3 * uint64_t{config.value_dim()};
  uint64_t attention = uint64_t{config.heads} * config.head_dim * 4 +
                       uint64_t{config.kv_heads} * config.head_dim * 2 +
                       uint64_t{config.indexer_heads} * config.indexer_dim;
  uint64_t experts = uint64_t{config.experts_used} * config.hidden + uint64_t{config.experts} +
                     2 * uint64_t{config.shared_width};
  return streams + std::max(delta, attention) + experts + 8 * uint64_t{config.hidden};
}

}  // namespace

uint64_t MemoryPlan::total_bytes() const {
  uint64_t total = 0;
  for (const PlanItem& item : items) total += item.bytes;
  return total;
}

const PlanItem& MemoryPlan::item(std::string_view use) const {
  auto found =
      std::find_if(items.begin(), items.end(), [&](const PlanItem& item) { return item.use == use; });
  CHECK(found != items.end(), "the plan has no item {}", use);
  return *found;
}

std::vector<std::string> MemoryPlan::lines() const {
  std::vector<std::string> lines;
  for (const PlanItem& item : items) {
    lines.push_back(fmt::format("{}: {:.1f} MiB for {}", item.use, mib(item.bytes), item.why));
  }
  lines.push_back(
      fmt::format("total: {:.1f} MiB of {:.1f} MiB available", mib(total_bytes()), mib(available_bytes)));
  return lines;
}

Status check_fits(const MemoryPlan& plan) {
  if (plan.total_bytes() > plan.available_bytes) {
    auto largest = std::max_element(plan.items.begin(), plan.items.end(),
                                    [](const PlanItem& a, const PlanItem& b) { return a.bytes < b.bytes; });
    return fail(Code::kResourceExhausted,
                "not enough memory: {:.1f} MiB are needed, {:.1f} MiB are available; the largest part is "
                "{:.1f} MiB for {}: lower {}",
                mib(plan.total_bytes()), mib(plan.available_bytes), mib(largest->bytes), largest->why,
                largest->setting);
  }
  return {};
}

PlanInput plan_input(const model::ModelWeights& weights, uint32_t context_tokens, uint64_t available_bytes) {
  PlanInput input{.available_bytes = available_bytes,
                  .sequence_bytes = model::SequenceState::bytes_needed(weights.config, context_tokens),
                  .slot_bytes = weights.max_expert_record_bytes(),
                  .experts_total = 0};
  for (const model::LayerWeights& layer : weights.layers) input.experts_total += layer.moe.experts.count;
  return input;
}

Result<uint32_t> planned_context(const model::ModelConfig& config, const config::Settings& settings) {
  uint32_t wanted = settings.engine_context_tokens();
  if (wanted > config.context_length) {
    return fail(Code::kInvalidArgument,
                "engine.context_tokens: {} is more than the {} tokens the model was made for", wanted,
                config.context_length);
  }
  uint32_t context = wanted == 0 ? config.context_length : wanted;
  if (context < 2)
    return fail(Code::kInvalidArgument, "engine.context_tokens: {} leaves no room for an answer", context);
  return context;
}

Result<MemoryPlan> make_plan(const model::ModelConfig& config, const config::Settings& settings,
                             uint32_t context_tokens, const PlanInput& input) {
  MemoryPlan plan;
  plan.sequences = settings.engine_sequences();
  plan.context_tokens = context_tokens;
  plan.prefill_chunk_tokens =
      std::min(settings.engine_prefill_chunk_tokens().number.value_or(kHostChunkTokens), context_tokens);
  plan.window_rows_max = plan.sequences + plan.prefill_chunk_tokens;
  plan.experts_total = static_cast<uint32_t>(input.experts_total);
  plan.slot_bytes = shm::arena_slot_bytes(input.slot_bytes);
  plan.available_bytes = input.available_bytes;
  uint32_t board_tokens = std::min(plan.window_rows_max, kBoardTokensMax);
  plan.board = {
      .hidden = config.hidden, .tokens_max = board_tokens, .pairs_max = board_tokens * config.experts_used};

  plan.items.push_back({"kv", plan.sequences * input.sequence_bytes,
                        fmt::format("{} sequences of {} tokens", plan.sequences, context_tokens),
                        "engine.context_tokens or engine.sequences"});
  uint64_t logits = uint64_t{plan.sequences} * config.vocab * sizeof(float) * 2;  // and the sampler's copy
  plan.items.push_back({"buffers", plan.window_rows_max * row_floats(config) * sizeof(float) + logits,
                        fmt::format("windows of up to {} rows", plan.window_rows_max),
                        "engine.prefill_chunk_tokens"});
  const uint32_t workers = expert::worker_count(settings);
  plan.items.push_back({"boards", workers * plan.board.segment_bytes(),
                        fmt::format("dispatch boards of {} expert workers", workers),
                        "cpu_experts.workers or engine.prefill_chunk_tokens"});

  // `auto` takes what is left after everything else, at most.
  uint64_t others = plan.total_bytes();
  uint64_t left = input.available_bytes > others ? input.available_bytes - others : 0;
  uint64_t automatic =
      std::min(input.experts_total * kAutoSlotsPercent / 100, left / kAutoArenaShareMax / plan.slot_bytes);
  plan.slots = static_cast<uint32_t>(settings.experts_slots().of(input.experts_total, automatic));
  plan.items.push_back(
      {"arena", plan.slots * plan.slot_bytes,
       fmt::format("{} of {} experts, {} bytes each", plan.slots, input.experts_total, plan.slot_bytes),
       "experts.slots"});

  TRY_OK(check_fits(plan));
  return plan;
}

}  // namespace strata::gpu_worker
