#include "gpu-worker/cuda/vram_plan.h"

#include <algorithm>

#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/device_model.h"
#include "gpu-worker/cuda/device_state.h"
#include "gpu-worker/cuda/window_input.h"
#include "services/base/check.h"
#include "services/expert/thread_plan.h"
#include "services/shm/arena.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kReserveMax = 1024 * kMiB;
constexpr uint64_t kReserveShare = 16;  // of the card
// Experts of a batch of copies: long enough copies for full speed, few enough that the first kernels begin
// soon.
constexpr uint32_t kBatchExperts = 64;
constexpr uint32_t kRingBatchesMin = 2, kRingBatchesMax = 4;
// Of what weights and sequences leave, at most, as far as kRingBatchesMin allows.
constexpr uint64_t kRingShare = 16;
// engine.prefill_chunk_tokens: auto takes the largest chunk whose buffers need at most this share of what
// weights and sequences leave: the arena is worth more to answers than larger chunks are to prompts.
constexpr uint64_t kChunkShare = 6;
constexpr uint32_t kChunkTokensMin = 128;

KvFormat kv_format(const config::Settings& settings) {
  if (settings.device_kv() == "float32") return KvFormat::kF32;
  return settings.device_kv() == "int8" ? KvFormat::kQ8 : KvFormat::kF16;
}

template <class Place>
uint64_t counted(const Place& place) {
  Placer placer;
  place(placer);
  return placer.used_bytes();
}

// Buffers and inputs of windows with prompt chunks of so many tokens.
uint64_t buffer_bytes(const model::ModelWeights& weights, const VramPlan& plan, bool forced_routing) {
  const WindowShape largest{.rows = plan.limits.rows,
                            .segments = plan.limits.segments,
                            .logit_rows = plan.limits.logit_rows,
                            .streams_experts = true,
                            .uses_boards = true};
  return counted([&](Placer& placer) {
    place_buffers(weights, plan.limits, placer);
    place_input(weights.config, largest, forced_routing, placer);
  });
}

void set_chunk(VramPlan& plan, uint32_t chunk_tokens) {
  plan.memory.prefill_chunk_tokens = chunk_tokens;
  plan.memory.window_rows_max = plan.limits.rows = plan.memory.sequences + chunk_tokens;
}

}  // namespace

uint64_t available_vram(const config::Settings& settings, const VramInput& vram) {
  const uint64_t used = vram.total_bytes - vram.free_bytes;
  const uint64_t card =
      std::min(settings.device_vram_budget().bytes.value_or(vram.total_bytes), vram.total_bytes);
  const uint64_t reserve =
      settings.device_vram_reserve().bytes.value_or(std::min(card / kReserveShare, kReserveMax));
  // What a budget leaves of the card is a reserve, too.
  const uint64_t beside = vram.total_bytes - card;
  const uint64_t taken = used + (reserve > beside ? reserve - beside : 0);
  return card > taken ? card - taken : 0;
}

Result<VramPlan> make_vram_plan(const model::ModelWeights& weights, const config::Settings& settings,
                                uint32_t context_tokens, const VramInput& vram) {
  const model::ModelConfig& config = weights.config;
  uint32_t block_tokens = 0;
  for (const uint32_t tokens : config.block_tokens) {
    if (tokens != 0 && block_tokens != 0 && tokens != block_tokens)
      return fail(Code::kUnimplemented,
                  "attention layers with blocks of {} and of {} tokens: the cuda device knows one size, "
                  "device.type: host any",
                  block_tokens, tokens);
    block_tokens = std::max(block_tokens, tokens);
  }
  VramPlan plan;
  MemoryPlan& memory = plan.memory;
  uint32_t experts_max = 0;
  for (const model::LayerWeights& layer : weights.layers) {
    memory.experts_total += layer.moe.experts.count;
    experts_max = std::max(experts_max, layer.moe.experts.count);
  }
  memory.on_gpu = true;
  memory.sequences = settings.engine_sequences();
  memory.context_tokens = context_tokens;
  memory.slot_bytes = shm::arena_slot_bytes(weights.max_expert_record_bytes());
  memory.available_bytes = available_vram(settings, vram);
  plan.kv = kv_format(settings);
  plan.batch_experts = std::min(kBatchExperts, experts_max);
  plan.limits = {.rows = 0,
                 .segments = memory.sequences,
                 .logit_rows = memory.sequences,
                 .context_tokens = context_tokens,
                 .batches = (experts_max + plan.batch_experts - 1) / plan.batch_experts,
                 .chunked_delta = settings.numerics() == "fast" && can_chunk_delta_net(config.state_dim)};

  const uint64_t weights_bytes = counted([&](Placer& placer) { place_model(weights, placer, nullptr); });
  const uint64_t state_bytes = counted(
      [&](Placer& placer) { place_state(config, memory.sequences, context_tokens, plan.kv, placer); });
  const auto left_of = [](uint64_t all, uint64_t used) { return all > used ? all - used : 0; };
  const uint64_t left_with_ring = left_of(memory.available_bytes, weights_bytes + state_bytes);
  plan.ring_batches = static_cast<uint32_t>(
      std::clamp<uint64_t>(left_with_ring / kRingShare / (plan.batch_experts * memory.slot_bytes),
                           kRingBatchesMin, kRingBatchesMax));
  const uint64_t staging_bytes = plan.staging_slots() * memory.slot_bytes;
  const uint64_t left = left_of(left_with_ring, staging_bytes);

  const bool forced_routing = !settings.engine_synthetic_routing().empty();
  const auto chosen_chunk = settings.engine_prefill_chunk_tokens().number;
  set_chunk(plan, std::min(chosen_chunk.value_or(kPrefillChunkTokensMax), context_tokens));
  while (!chosen_chunk && memory.prefill_chunk_tokens > kChunkTokensMin &&
         buffer_bytes(weights, plan, forced_routing) > left / kChunkShare) {
    set_chunk(plan, memory.prefill_chunk_tokens / 2);
  }
  const uint64_t buffers_bytes = buffer_bytes(weights, plan, forced_routing);
  const uint32_t board_tokens = std::min(plan.limits.rows, kBoardTokensMax);
  memory.board = {
      .hidden = config.hidden, .tokens_max = board_tokens, .pairs_max = board_tokens * config.experts_used};
  // What does not fit a board is copied.
  plan.stream_rows_min = std::min(settings.experts_stream_tokens_min(), board_tokens + 1);

  memory.items.push_back(
      {"weights", weights_bytes, "everything but routed experts and tables", "a smaller model"});
  memory.items.push_back({"kv", state_bytes,
                          fmt::format("{} sequences of {} tokens", memory.sequences, context_tokens),
                          "engine.context_tokens, engine.sequences or device.kv"});
  memory.items.push_back({"buffers", buffers_bytes, fmt::format("windows of up to {} rows", plan.limits.rows),
                          "engine.prefill_chunk_tokens"});
  memory.items.push_back({"staging", staging_bytes,
                          fmt::format("{} experts on their way to a prompt", plan.staging_slots()),
                          "a smaller model"});
  const uint64_t automatic = std::min<uint64_t>(
      memory.experts_total, left_of(memory.available_bytes, memory.total_bytes()) / memory.slot_bytes);
  memory.slots = static_cast<uint32_t>(settings.experts_slots().of(memory.experts_total, automatic));
  memory.items.push_back(
      {"arena", memory.slots * memory.slot_bytes,
       fmt::format("{} of {} experts, {} bytes each", memory.slots, memory.experts_total, memory.slot_bytes),
       "experts.slots"});
  TRY_OK(check_fits(memory));
  return plan;
}

}  // namespace strata::gpu_worker::cuda
