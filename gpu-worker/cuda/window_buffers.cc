#include "gpu-worker/cuda/window_buffers.h"

#include <algorithm>

#include "gpu-worker/cuda/attention.h"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/device_model.h"
#include "gpu-worker/cuda/device_state.h"
#include "gpu-worker/cuda/products_f32_packed.h"
#include "gpu-worker/cuda/sampling.h"

namespace strata::gpu_worker::cuda {
namespace {

// Rows of an attention tile: enough to fill any GPU, few enough that their scores stay in hundreds of MiB.
constexpr uint32_t kScoreRowsMax = 256;

// Rows of activations that float products take at a time: enough to fill any GPU.
constexpr uint32_t kProductRowsMax = 2048;

Q8Rows place_q8(uint64_t rows, uint32_t cols, Placer& placer) {
  // Rows of float matrices' widths may be no multiple of a block; such a row is never asked for in 8 bits.
  if (cols % 32 != 0) return {};
  return {.data = placer.take<std::byte>(rows * q8_row_stride(cols)),
          .stride = q8_row_stride(cols),
          .cols = cols};
}

// Buffers that begin where `placer` stands; the largest of them moves it on.
class Overlay {
 public:
  explicit Overlay(Placer& placer) : placer_(placer), begin_(placer) {}
  ~Overlay() { placer_.take<std::byte>(largest_ - begin_.used_bytes()); }
  Overlay(const Overlay&) = delete;
  Overlay& operator=(const Overlay&) = delete;

  template <class Place>
  void add(const Place& place) {
    Placer own = begin_;
    place(own);
    largest_ = std::max(largest_, own.used_bytes());
  }

 private:
  Placer& placer_;
  const Placer begin_;
  uint64_t largest_ = begin_.used_bytes();
};

DeltaBuffers place_delta(const model::ModelConfig& config, const WindowLimits& limits, Placer& placer) {
  const uint64_t rows = limits.rows;
  const uint64_t chunk = limits.chunked_delta ? delta_chunk_floats(config.value_heads, config.state_dim) : 0;
  const uint64_t qkv_floats = std::max(rows * config.qkv_dim(), chunk);
  DeltaBuffers buffers{.qkv = placer.take<float>(qkv_floats),
                       .mixed = placer.take<float>(rows * config.qkv_dim()),
                       .gate = placer.take<float>(rows * config.value_dim()),
                       .alpha = placer.take<float>(rows * config.value_heads),
                       .beta = placer.take<float>(rows * config.value_heads),
                       .heads = placer.take<float>(rows * config.value_dim()),
                       .heads_q8 = place_q8(rows, config.value_dim(), placer)};
  if (limits.chunked_delta) {
    buffers.log_decays = placer.take<float>(rows * config.value_heads);
    buffers.chunk_scratch = {.data = buffers.qkv, .floats = qkv_floats};
  }
  return buffers;
}

AttentionBuffers place_attention(const model::ModelConfig& config, const WindowLimits& limits,
                                 Placer& placer) {
  const uint64_t rows = limits.rows, heads_dim = uint64_t{config.heads} * config.head_dim;
  const uint64_t kv_dim = uint64_t{config.kv_heads} * config.head_dim;
  AttentionBuffers buffers{.q = placer.take<float>(rows * 2 * heads_dim),
                           .k = placer.take<float>(rows * kv_dim),
                           .v = placer.take<float>(rows * kv_dim),
                           .indexer_q = placer.take<float>(rows * config.indexer_heads * config.indexer_dim),
                           .indexer_k = placer.take<float>(rows * config.indexer_dim),
                           .score_rows = std::min(limits.rows, kScoreRowsMax),
                           .heads = placer.take<float>(rows * heads_dim),
                           .heads_q8 = place_q8(rows, static_cast<uint32_t>(heads_dim), placer)};
  uint64_t chosen = 0, blocks = 0, scratch = 0;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (config.layer_kinds[layer] != model::LayerKind::kAttention) continue;
    const AttentionShape shape = attention_shape(config, layer);
    chosen = std::max<uint64_t>(chosen, shape.blocks_chosen());
    if (shape.block_tokens > 0)
      blocks = std::max<uint64_t>(blocks, limits.context_tokens / shape.block_tokens);
    scratch = std::max(scratch, attention_scratch_floats(shape, limits.context_tokens));
  }
  buffers.chosen = placer.take<uint32_t>(rows * chosen);
  buffers.block_scores = placer.take<float>(buffers.score_rows * blocks);
  buffers.scores = placer.take<float>(buffers.score_rows * scratch);
  return buffers;
}

MoeBuffers place_moe(const model::ModelWeights& weights, const DeviceModel& shapes,
                     const WindowLimits& limits, Placer& placer) {
  const model::ModelConfig& config = weights.config;
  const uint64_t rows = limits.rows, pairs = rows * config.experts_used;
  uint32_t experts = 0;
  uint64_t workspace = 0;
  for (const DeviceLayer& layer : shapes.layers) {
    experts = std::max(experts, layer.moe.experts.count);
    workspace = std::max(workspace, experts_workspace_bytes(layer.moe.experts, static_cast<uint32_t>(pairs)));
  }
  const uint32_t lists = 1 + limits.batches;
  MoeBuffers buffers;
  buffers.logits = placer.take<float>(rows * experts);
  buffers.shared_router = placer.take<float>(rows);
  buffers.weights = placer.take<float>(pairs);
  buffers.lists = {.counts = placer.take<HitCounts>(lists),
                   .groups = placer.take<HitGroup>(uint64_t{lists} * experts),
                   .pairs = placer.take<uint32_t>(lists * pairs),
                   .count = lists,
                   .groups_max = experts,
                   .pairs_max = static_cast<uint32_t>(pairs)};
  buffers.scratch = {.counts = placer.take<uint32_t>(experts), .cursors = placer.take<uint32_t>(experts)};
  buffers.board_pairs = placer.take<uint32_t>(kExpertWorkersMax);
  buffers.remote = placer.take<uint64_t>(pairs);
  buffers.parts = placer.take<float>(pairs * config.hidden);
  buffers.workspace = placer.take<std::byte>(workspace);
  buffers.shared_gate = placer.take<float>(rows * config.shared_width);
  buffers.shared_up = placer.take<float>(rows * config.shared_width);
  buffers.shared_q8 = place_q8(rows, config.shared_width, placer);
  buffers.shared = placer.take<float>(rows * config.hidden);
  return buffers;
}

// Room for the float products that every model has; float matrices of other blocks run in pieces of it.
void place_products(const model::ModelConfig& config, uint64_t window_rows, Placer& placer,
                    WindowBuffers& buffers) {
  const auto rows = static_cast<uint32_t>(std::min<uint64_t>(window_rows, kProductRowsMax));
  const auto wide = static_cast<uint32_t>(config.stream_dim());
  const auto place = [&](uint64_t floats) {
    return FloatScratch{.data = placer.take<float>(floats), .floats = floats};
  };
  // A second matrix of few rows (inject weights, the shared expert's gate) has a tile of its own.
  buffers.products = place(std::max({scratch_floats(wide, config.mixer_rank, rows),
                                     scratch_floats(config.mixer_rank + kTileRows, wide, rows),
                                     scratch_floats(config.experts + kTileRows, config.hidden, rows)}));
  const uint32_t steps = 2 * packed_tiles(config.value_heads) * kTileRows,
                 indexer =
                     config.indexer_heads * config.indexer_dim + packed_tiles(config.indexer_dim) * kTileRows;
  buffers.side_products = place(scratch_floats(std::max(steps, indexer), config.hidden, rows));
}

}  // namespace

WindowBuffers place_buffers(const model::ModelWeights& weights, const WindowLimits& limits, Placer& placer) {
  const model::ModelConfig& config = weights.config;
  const uint64_t rows = limits.rows, wide = config.stream_dim();
  Placer counting;
  const DeviceModel shapes = place_model(weights, counting, nullptr);
  WindowBuffers buffers;
  buffers.streams = placer.take<float>(rows * wide);
  buffers.block_input = placer.take<float>(rows * config.hidden);
  buffers.block_input_q8 = place_q8(rows, config.hidden, placer);
  buffers.block_output = placer.take<float>(rows * config.hidden);
  for (float*& inject : buffers.inject) inject = placer.take<float>(rows * config.streams);
  buffers.ids = placer.take<uint16_t>(config.layers * rows * config.experts_used);
  buffers.arrivals = placer.take<uint32_t>(uint64_t{limits.segments} * std::max(config.key_heads, 1u));
  buffers.gathered = placer.take<float>(limits.logit_rows * wide);
  buffers.logits = placer.take<float>(uint64_t{limits.logit_rows} * config.vocab);
  buffers.sampling = placer.take<std::byte>(sampling_scratch_bytes(limits.logit_rows, config.vocab));

  place_products(config, rows, placer, buffers);

  Overlay overlay(placer);
  overlay.add([&](Placer& own) {
    buffers.mixer = {.normed = own.take<float>(rows * wide),
                     .mask = own.take<float>(rows * wide),
                     .low = own.take<float>(rows * config.mixer_rank),
                     .products = buffers.products};
  });
  overlay.add([&](Placer& own) {
    buffers.ngram = {.embedded_q8 = place_q8(rows, config.hidden, own),
                     .keys = own.take<float>(rows * wide),
                     .values = own.take<float>(rows * config.hidden),
                     .gated = own.take<float>(rows * wide),
                     .conv_input = own.take<float>(rows * wide)};
  });
  overlay.add([&](Placer& own) { buffers.delta = place_delta(config, limits, own); });
  overlay.add([&](Placer& own) { buffers.attention = place_attention(config, limits, own); });
  overlay.add([&](Placer& own) { buffers.moe = place_moe(weights, shapes, limits, own); });
  return buffers;
}

}  // namespace strata::gpu_worker::cuda
