#include "gpu-worker/cuda/vram_plan.h"

#include <algorithm>

#include "gpu-worker/cuda/device_layout.h"
#include "services/expert/thread_plan.h"
#include "services/shm/arena.h"
#include "services/shm/residency_table.h"
#include "services/shm/usage_board.h"

namespace strata::gpu_worker::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kReserveMax = 1024 * kMiB;
constexpr uint64_t kReserveShare = 16;  // of the card
// Experts of a batch of copies: few enough that the first kernels begin soon, and as many as the ring has
// room for twice (docs/performance.md has prompts with batches of 32).
constexpr uint32_t kBatchExpertsMin = 16, kBatchExpertsMax = 64;
constexpr uint32_t kRingBatchesMin = 2, kRingBatchesMax = 4;
// Of what weights and sequences leave, at most, as far as the smallest ring allows: the arena is worth more
// to answers than a longer ring is to prompts.
constexpr uint64_t kRingShare = 32;
// engine.prefill_chunk_tokens: auto takes the largest chunk whose buffers need at most this share of what
// weights and sequences leave: the arena is worth more to answers than larger chunks are to prompts.
constexpr uint64_t kChunkShare = 6;
constexpr uint32_t kChunkTokensMin = 128;

KvFormat kv_format(const config::Settings& settings) {
  if (settings.device_kv() == "float32") return KvFormat::kF32;
  return settings.device_kv() == "int8" ? KvFormat::kQ8 : KvFormat::kF16;
}

uint64_t left_of(uint64_t all, uint64_t used) { return all > used ? all - used : 0; }

DeviceLayout::Bytes layout_bytes(const model::ModelWeights& weights, const VramPlan& plan) {
  Placer counting;
  return lay_out(weights, plan, counting, nullptr).bytes;
}

void set_chunk(VramPlan& plan, uint32_t chunk_tokens) {
  plan.memory.prefill_chunk_tokens = chunk_tokens;
  plan.memory.window_rows_max = plan.limits.rows = plan.memory.sequences + chunk_tokens;
}

void set_ring(VramPlan& plan, uint64_t bytes) {
  const uint64_t experts = bytes / plan.memory.slot_bytes;
  uint32_t batch = kBatchExpertsMax;
  while (batch > kBatchExpertsMin && experts < uint64_t{kRingBatchesMin} * batch) batch /= 2;
  plan.batch_experts = std::min(batch, plan.experts_max);
  plan.ring_batches = static_cast<uint32_t>(
      std::clamp<uint64_t>(experts / plan.batch_experts, kRingBatchesMin, kRingBatchesMax));
  plan.limits.batches = (plan.experts_max + plan.batch_experts - 1) / plan.batch_experts;
}

// What the worker takes of the host's memory: none of it is swapped.
void add_host_items(const model::ModelConfig& config, const config::Settings& settings, VramPlan& plan) {
  MemoryPlan& memory = plan.memory;
  const uint32_t workers = expert::worker_count(settings);
  memory.host_items.push_back({"boards", (workers + 1) * memory.board.segment_bytes(),
                               fmt::format("dispatch boards of {} expert workers and one more", workers),
                               "cpu_experts.workers or engine.prefill_chunk_tokens"});
  memory.host_items.push_back({"windows", pinned_counts(config, plan).bytes(),
                               "page-locked inputs and results of windows", "engine.prefill_chunk_tokens"});
  memory.host_items.push_back({"tables",
                               shm::UsageBoard::bytes_needed(config.layers, plan.experts_max) +
                                   shm::ResidencyTable::bytes_needed(memory.slots),
                               "usage counts and the residency table", ""});
  memory.host_items.push_back(grammars_item(config));
}

// One size of attention blocks is all that the device knows.
Status check_blocks(const model::ModelConfig& config) {
  uint32_t block_tokens = 0;
  for (const uint32_t tokens : config.block_tokens) {
    if (tokens != 0 && block_tokens != 0 && tokens != block_tokens)
      return fail(Code::kUnimplemented,
                  "attention layers with blocks of {} and of {} tokens: the cuda device knows one size, "
                  "device.type: host any",
                  block_tokens, tokens);
    block_tokens = std::max(block_tokens, tokens);
  }
  return {};
}

}  // namespace

VramShares vram_shares(const config::Settings& settings, const VramInput& vram) {
  const uint64_t card =
      std::min(settings.device_vram_budget().bytes.value_or(vram.total_bytes), vram.total_bytes);
  const uint64_t reserve =
      settings.device_vram_reserve().bytes.value_or(std::min(card / kReserveShare, kReserveMax));
  // What a budget leaves of the card is a reserve, too.
  VramShares shares{.in_use = vram.total_bytes - vram.free_bytes, .beyond_budget = vram.total_bytes - card};
  shares.reserve = left_of(reserve, shares.beyond_budget);
  shares.available = left_of(card, shares.in_use + shares.reserve);
  return shares;
}

Result<VramPlan> lay_out_vram(const model::ModelWeights& weights, const config::Settings& settings,
                              uint32_t context_tokens, const VramInput& vram) {
  TRY_OK(check_blocks(weights.config));
  VramPlan plan;
  MemoryPlan& memory = plan.memory;
  for (const model::LayerWeights& layer : weights.layers) {
    memory.experts_total += layer.moe.experts.count;
    plan.experts_max = std::max(plan.experts_max, layer.moe.experts.count);
  }
  memory.on_gpu = true;
  memory.sequences = settings.engine_sequences();
  memory.context_tokens = context_tokens;
  memory.slot_bytes = shm::arena_slot_bytes(weights.max_expert_record_bytes());
  const VramShares shares = vram_shares(settings, vram);
  memory.available_bytes = shares.available;
  memory.set_aside = {{"in use", shares.in_use, "the driver and other programs", ""},
                      {"reserve", shares.reserve, "stays free (device.vram_reserve)", ""}};
  if (shares.beyond_budget > 0)
    memory.set_aside.push_back({"not used", shares.beyond_budget, "beyond device.vram_budget", ""});
  plan.kv = kv_format(settings);
  plan.forced_routing = !settings.engine_synthetic_routing().empty();
  plan.limits = {.rows = 0,
                 .segments = memory.sequences,
                 .logit_rows = memory.sequences,
                 .context_tokens = context_tokens,
                 .chunked_delta = settings.numerics() == "fast" && vram.chunks_delta};

  const auto chosen_chunk = settings.engine_prefill_chunk_tokens().number;
  set_ring(plan, 0);  // until it is known what is left
  set_chunk(plan, std::min(chosen_chunk.value_or(kPrefillChunkTokensMax), context_tokens));
  DeviceLayout::Bytes bytes = layout_bytes(weights, plan);
  const uint64_t checkpoint_bytes =
      StateLayout(state_arrays(weights.config, context_tokens, plan.kv)).fixed_bytes();
  memory.checkpoint_slots = planned_checkpoints(
      settings, left_of(memory.available_bytes, bytes.weights + bytes.state), checkpoint_bytes);
  bytes = layout_bytes(weights, plan);
  const uint64_t left_with_ring =
      left_of(memory.available_bytes, bytes.weights + bytes.state + bytes.checkpoints);
  set_ring(plan, left_with_ring / kRingShare);
  const uint64_t left = left_of(left_with_ring, plan.staging_slots() * memory.slot_bytes);
  bytes = layout_bytes(weights, plan);
  while (!chosen_chunk && memory.prefill_chunk_tokens > kChunkTokensMin &&
         bytes.buffers > left / kChunkShare) {
    set_chunk(plan, memory.prefill_chunk_tokens / 2);
    bytes = layout_bytes(weights, plan);
  }
  const uint32_t board_tokens = std::min(plan.limits.rows, kBoardTokensMax);
  memory.board = {.hidden = weights.config.hidden,
                  .tokens_max = board_tokens,
                  .pairs_max = board_tokens * weights.config.experts_used};
  // What does not fit a board is copied.
  plan.stream_rows_min = std::min(settings.experts_stream_tokens_min(), board_tokens + 1);

  memory.items = {
      {"weights", bytes.weights, "everything but routed experts and tables", ""},
      {"kv", bytes.state, fmt::format("{} sequences of {} tokens", memory.sequences, context_tokens),
       "engine.context_tokens, engine.sequences or device.kv"},
      checkpoints_item(memory, bytes.checkpoints),
      {"buffers", bytes.buffers, fmt::format("windows of up to {} rows", plan.limits.rows),
       "engine.prefill_chunk_tokens"},
      {"staging", bytes.staging, fmt::format("{} experts on their way to a prompt", plan.staging_slots()),
       ""},
      {"tables", bytes.tables, "places of experts, dispatch boards", ""}};
  add_arena(memory, settings,
            std::min<uint64_t>(memory.experts_total, memory.left_bytes() / memory.slot_bytes));
  add_host_items(weights.config, settings, plan);
  return plan;
}

Result<VramPlan> make_vram_plan(const model::ModelWeights& weights, const config::Settings& settings,
                                uint32_t context_tokens, const VramInput& vram) {
  TRY(VramPlan plan, lay_out_vram(weights, settings, context_tokens, vram));
  TRY_OK(check_fits(plan.memory));
  return plan;
}

}  // namespace strata::gpu_worker::cuda
