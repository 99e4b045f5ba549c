#include "gpu-worker/plan.h"

#include <algorithm>
#include <numeric>

#include "gpu-worker/expert_dispatch.h"
#include "gpu-worker/host/host_state.h"
#include "gpu-worker/plan_table.h"
#include "services/base/check.h"
#include "services/expert/thread_plan.h"
#include "services/model/forward.h"
#include "services/model/sequence_state.h"
#include "services/shm/arena.h"
#include "services/shm/residency_table.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker {

namespace {

constexpr uint32_t kHostChunkTokens = 128;  // engine.prefill_chunk_tokens: auto
// Share of all experts that `auto` makes room for on the host device, where the arena is ordinary memory:
// enough for the few that do most of the work.
constexpr uint64_t kAutoSlotsPercent = 25;
// `auto` leaves this share of the available memory to the page cache, which holds the experts that miss.
constexpr uint64_t kAutoArenaShareMax = 2;  // at most one half

// engine.checkpoints: auto.
constexpr uint64_t kAutoCheckpointsMin = 2, kAutoCheckpointsMax = 32;
constexpr uint64_t kCheckpointsShare = 64;  // of the available memory, at most

// Of the model's tokens as grammars are compiled for, kept, and of the tokenizer that they are read from
// meanwhile.
constexpr uint64_t kVocabularyTokenBytes = 512;

uint64_t buffer_bytes(const model::ModelWeights& weights, const config::Settings& settings,
                      const MemoryPlan& plan) {
  const uint32_t threads = expert::host_device_threads(settings, sys::machine_topology());
  // Logits of all sequences; the sampler's candidates, a value and an id, for one.
  const uint64_t logits = (uint64_t{plan.sequences} + 2) * weights.config.vocab * sizeof(float);
  return model::Forward::bytes_needed(weights, plan.window_rows_max, plan.context_tokens) +
         ExpertDispatch::bytes_needed(weights, plan.window_rows_max, threads) +
         routed_picks_max(weights.config, plan.window_rows_max) * sizeof(uint16_t) + logits;
}

}  // namespace

uint64_t total_bytes(const std::vector<PlanItem>& items) {
  return std::accumulate(items.begin(), items.end(), uint64_t{0},
                         [](uint64_t sum, const PlanItem& item) { return sum + item.bytes; });
}

const PlanItem& MemoryPlan::item(std::string_view use) const {
  const auto found = std::ranges::find(items, use, &PlanItem::use);
  CHECK(found != items.end(), "the plan has no item {}", use);
  return *found;
}

Status check_fits(const MemoryPlan& plan) {
  const uint64_t needed = plan.total_bytes();
  if (needed <= plan.available_bytes) return {};
  const PlanItem* largest = nullptr;
  uint64_t fixed = 0;
  for (const PlanItem& item : plan.items) {
    if (item.setting.empty()) {
      fixed += item.bytes;
    } else if (largest == nullptr || item.bytes > largest->bytes) {
      largest = &item;
    }
  }
  const std::string text =
      fmt::format("not enough {} memory: {} are needed, {} are available", plan.on_gpu ? "device" : "host",
                  bytes_text(needed), bytes_text(plan.available_bytes));
  if (largest == nullptr || fixed > plan.available_bytes) {
    return fail(Code::kResourceExhausted,
                "{}; {} of it no setting makes smaller: it takes {} or a smaller model", text,
                bytes_text(fixed), plan.on_gpu ? "a larger card" : "more memory");
  }
  return fail(Code::kResourceExhausted, "{}; the largest part is {} for {}: lower {}", text,
              bytes_text(largest->bytes), largest->why, largest->setting);
}

void add_arena(MemoryPlan& plan, const config::Settings& settings, uint64_t automatic) {
  plan.slots = static_cast<uint32_t>(settings.experts_slots().of(plan.experts_total, automatic));
  const double share = plan.experts_total == 0 ? 0 : 100.0 * plan.slots / plan.experts_total;
  plan.items.push_back({"arena", plan.slots * plan.slot_bytes,
                        fmt::format("{} of {} experts ({:.1f}%), {} each", plan.slots, plan.experts_total,
                                    share, bytes_text(plan.slot_bytes)),
                        "experts.slots"});
}

PlanItem checkpoints_item(const MemoryPlan& plan, uint64_t bytes) {
  return {"checkpoints", bytes, fmt::format("{} checkpoints of conversations", plan.checkpoint_slots),
          "engine.checkpoints"};
}

PlanItem grammars_item(const model::ModelConfig& config) {
  return {"grammars", config.vocab * kVocabularyTokenBytes + kGrammarCacheBytes,
          "the model's tokens for constrained answers, compiled grammars", ""};
}

uint32_t planned_checkpoints(const config::Settings& settings, uint64_t available_bytes,
                             uint64_t checkpoint_bytes) {
  const uint64_t fitting = available_bytes / kCheckpointsShare / std::max<uint64_t>(checkpoint_bytes, 1);
  return settings.engine_checkpoints().number.value_or(
      static_cast<uint32_t>(std::clamp(fitting, kAutoCheckpointsMin, kAutoCheckpointsMax)));
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

MemoryPlan lay_out_host(const model::ModelWeights& weights, const config::Settings& settings,
                        uint32_t context_tokens, uint64_t available_bytes) {
  const model::ModelConfig& config = weights.config;
  MemoryPlan plan;
  plan.sequences = settings.engine_sequences();
  plan.context_tokens = context_tokens;
  plan.prefill_chunk_tokens =
      std::min(settings.engine_prefill_chunk_tokens().number.value_or(kHostChunkTokens), context_tokens);
  plan.window_rows_max = plan.sequences + plan.prefill_chunk_tokens;
  uint32_t experts_max = 0;
  for (const model::LayerWeights& layer : weights.layers) {
    plan.experts_total += layer.moe.experts.count;
    experts_max = std::max(experts_max, layer.moe.experts.count);
  }
  plan.slot_bytes = shm::arena_slot_bytes(weights.max_expert_record_bytes());
  plan.available_bytes = available_bytes;
  uint32_t board_tokens = std::min(plan.window_rows_max, kBoardTokensMax);
  plan.board = {
      .hidden = config.hidden, .tokens_max = board_tokens, .pairs_max = board_tokens * config.experts_used};

  plan.items.push_back({"kv", plan.sequences * model::SequenceState::bytes_needed(config, context_tokens),
                        fmt::format("{} sequences of {} tokens", plan.sequences, context_tokens),
                        "engine.context_tokens or engine.sequences"});
  const uint64_t checkpoint_bytes =
      StateLayout(host_state_arrays(config, model::SequenceState(config, 1))).fixed_bytes();
  plan.checkpoint_slots = planned_checkpoints(settings, available_bytes, checkpoint_bytes);
  plan.items.push_back(checkpoints_item(plan, plan.checkpoint_slots * checkpoint_bytes));
  plan.items.push_back({"buffers", buffer_bytes(weights, settings, plan),
                        fmt::format("windows of up to {} rows", plan.window_rows_max),
                        "engine.prefill_chunk_tokens"});
  const uint32_t workers = expert::worker_count(settings);
  plan.items.push_back({"boards", workers * plan.board.segment_bytes(),
                        fmt::format("dispatch boards of {} expert workers", workers),
                        "cpu_experts.workers or engine.prefill_chunk_tokens"});
  plan.items.push_back({"tables",
                        shm::UsageBoard::bytes_needed(config.layers, experts_max) +
                            shm::ResidencyTable::bytes_needed(plan.experts_total),
                        "usage counts and the residency table", ""});
  plan.items.push_back(grammars_item(config));

  // `auto` takes what is left after everything else, at most.
  const uint64_t automatic =
      std::min(plan.experts_total * kAutoSlotsPercent / 100,
               plan.left_bytes() / kAutoArenaShareMax / std::max<uint64_t>(plan.slot_bytes, 1));
  add_arena(plan, settings, automatic);
  return plan;
}

Result<MemoryPlan> make_host_plan(const model::ModelWeights& weights, const config::Settings& settings,
                                  uint32_t context_tokens, uint64_t available_bytes) {
  MemoryPlan plan = lay_out_host(weights, settings, context_tokens, available_bytes);
  TRY_OK(check_fits(plan));
  return plan;
}

}  // namespace strata::gpu_worker
