#include "gpu-worker/cuda/forward.h"

#include <array>
#include <utility>

#include "gpu-worker/cuda/attention.h"
#include "gpu-worker/cuda/attention_blocks.h"
#include "gpu-worker/cuda/attention_prepare.h"
#include "gpu-worker/cuda/combine.h"
#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/dispatch.h"
#include "gpu-worker/cuda/embedding.h"
#include "gpu-worker/cuda/ngram.h"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/products_q8.h"
#include "gpu-worker/cuda/quantize.h"
#include "gpu-worker/cuda/route.h"
#include "gpu-worker/cuda/runtime.h"
#include "gpu-worker/cuda/weights_ahead.h"
#include "services/quant/quant.h"

namespace strata::gpu_worker::cuda {
namespace {

// A product's input in the forms that its matrices need.
struct Input {
  FloatRows f32;
  Q8Rows q8;
};

// Every matrix with the activations of its type, as model::multiply_all chooses them.
void multiply(std::initializer_list<ProductJob> jobs, const Input& input, uint32_t rows, cudaStream_t stream,
              FloatScratch scratch) {
  std::array<ProductJob, kProductJobsMax> quantized, floats;
  std::size_t quantized_count = 0, floats_count = 0;
  for (const ProductJob& job : jobs) {
    if (quant::is_quantized(job.matrix.type)) {
      quantized[quantized_count++] = job;
    } else {
      floats[floats_count++] = job;
    }
  }
  if (quantized_count > 0) multiply_q8(std::span(quantized).first(quantized_count), input.q8, rows, stream);
  if (floats_count > 0) multiply_f32(std::span(floats).first(floats_count), input.f32, rows, stream, scratch);
}

// The shared expert of so few rows is two launches.
constexpr uint32_t kFusedSharedRowsMax = 2;

// Of the second-level cache, for weights that come next: the rest is for what lies between.
constexpr uint64_t kAheadShare = 2;

Q8Rows if_quantized(TensorType type, const Q8Rows& rows) {
  return quant::is_quantized(type) ? rows : Q8Rows();
}

}  // namespace

// One call of enqueue().
struct Forward::Pass {
  const ForwardOptions& o;
  const model::ModelConfig& config;
  const WindowBuffers& b;
  const WindowShape& shape;
  const WindowInput& input;
  ExpertStream* experts;
  StageMarks& marks;
  cudaStream_t stream, side;
  cudaEvent_t fork, join;
  WindowView window;
  std::span<const StateCapture> captures;
  PendingAdd pending = {};  // what the last block gave and the streams do not hold yet

  uint32_t rows() const { return shape.rows; }
  Input block_input() const { return {.f32 = {b.block_input, config.hidden}, .q8 = b.block_input_q8}; }

  // What `beside` enqueues on the side stream runs beside what follows, until join_side().
  template <class Beside>
  void fork_side(const Beside& beside) const {
    cudaEventRecord(fork, stream);
    cudaStreamWaitEvent(side, fork, 0);
    beside();
    cudaEventRecord(join, side);
  }
  void join_side() const { cudaStreamWaitEvent(stream, join, 0); }

  void embed();
  void ngram();
  void read(const StreamMixer& mixer, uint32_t which);
  void delta(uint32_t layer);
  void attend(uint32_t layer);
  void moe(uint32_t layer);
  void shared_expert(const DeviceMoe& weights);
  void routed_experts(uint32_t layer, const DeviceMoe& weights);
  void compute_list(const DeviceMoe& weights, uint32_t list);
  void head();
};

void Forward::Pass::embed() {
  // The host has looked the tokens up: its rows are the table, and each row's "token" is its own number.
  const DeviceMatrix table{.type = TensorType::kF32,
                           .rows = rows(),
                           .cols = config.hidden,
                           .data = reinterpret_cast<const std::byte*>(input.embedded),
                           .row_bytes = config.hidden * sizeof(float)};
  embed_tokens({.table = table, .window = window, .streams = b.streams, .streams_count = config.streams},
               stream);
}

void Forward::Pass::ngram() {
  const DeviceNgram& weights = o.model.ngram;
  if (pending.output != nullptr) {
    add_to_streams({.pending = pending,
                    .streams = b.streams,
                    .streams_count = config.streams,
                    .hidden = config.hidden,
                    .rows = rows()},
                   stream);
    pending = {};
  }
  const Input embedded{.f32 = {input.ngram, config.hidden}, .q8 = b.ngram.embedded_q8};
  if (quant::is_quantized(weights.key.type) || quant::is_quantized(weights.value.type))
    quantize_q8({.x = embedded.f32, .rows = rows(), .cols = config.hidden, .out = embedded.q8}, stream);
  multiply({{weights.key, b.ngram.keys, config.stream_dim()}, {weights.value, b.ngram.values, config.hidden}},
           embedded, rows(), stream, b.products);
  ngram_add({.window = window,
             .norm_key = weights.norm_key,
             .norm_query = weights.norm_query,
             .norm_conv = weights.norm_conv,
             .conv = weights.conv,
             .streams_count = config.streams,
             .hidden = config.hidden,
             .taps = config.ngram_taps,
             .dilation = config.ngram_size,
             .eps = config.eps,
             .keys = b.ngram.keys,
             .values = b.ngram.values,
             .gated = b.ngram.gated,
             .conv_input = b.ngram.conv_input,
             .streams = b.streams,
             .history = o.state.ngram_history,
             .history_stride = o.state.ngram_history_stride},
            stream, captures);
}

// which: 0 before the mixer of a layer, 1 before its experts.
void Forward::Pass::read(const StreamMixer& mixer, uint32_t which) {
  read_streams({.mixer = mixer,
                .pending = pending,
                .streams = b.streams,
                .scratch = b.mixer,
                .inject = b.inject[which],
                .input = b.block_input,
                .input_q8 = b.block_input_q8,
                .rows = rows()},
               stream);
  pending = {.output = b.block_output, .inject = b.inject[which]};
}

void Forward::Pass::delta(uint32_t layer) {
  const DeviceDelta& weights = o.model.layers[layer].delta;
  const DeltaBuffers& d = b.delta;
  fork_side([&] {
    const ProductJob steps[] = {{weights.alpha, d.alpha, config.value_heads},
                                {weights.beta, d.beta, config.value_heads}};
    multiply_f32(steps, block_input().f32, rows(), side, b.side_products);
  });
  multiply({{weights.qkv, d.qkv, config.qkv_dim()}, {weights.gate, d.gate, config.value_dim()}},
           block_input(), rows(), stream, b.products);
  join_side();
  delta_net({.window = window,
             .key_heads = config.key_heads,
             .value_heads = config.value_heads,
             .dim = config.state_dim,
             .taps = config.conv_taps,
             .eps = config.eps,
             .conv = weights.conv,
             .a = weights.a,
             .dt_bias = weights.dt_bias,
             .norm = weights.norm,
             .qkv = {d.qkv, config.qkv_dim()},
             .gate = {d.gate, config.value_dim()},
             .alpha = {d.alpha, config.value_heads},
             .beta = {d.beta, config.value_heads},
             .heads = d.heads,
             .heads_q8 = if_quantized(weights.out.type, d.heads_q8),
             .state = o.state.delta[layer],
             .state_stride = o.state.delta_stride,
             .history = o.state.delta_history[layer],
             .history_stride = o.state.delta_history_stride,
             .mixed = d.mixed,
             .arrivals = b.arrivals,
             .log_decays = d.log_decays,
             .chunk_scratch = d.chunk_scratch},
            stream, {captures, layer});
  multiply({{weights.out, b.block_output, config.hidden}},
           {.f32 = {d.heads, config.value_dim()}, .q8 = d.heads_q8}, rows(), stream, b.products);
}

void Forward::Pass::attend(uint32_t layer) {
  const DeviceAttention& weights = o.model.layers[layer].attention;
  const AttentionBuffers& a = b.attention;
  const AttentionShape attention_of = attention_shape(config, layer);
  const AttentionCache& cache = o.state.attention[layer];
  const uint64_t heads_dim = uint64_t{config.heads} * config.head_dim,
                 kv_dim = uint64_t{config.kv_heads} * config.head_dim;
  const uint64_t indexer_dim = uint64_t{config.indexer_heads} * config.indexer_dim;
  const bool sparse = attention_of.block_tokens > 0;
  const FloatRows q{a.q, 2 * heads_dim}, indexer_q{a.indexer_q, indexer_dim};
  if (sparse) {
    fork_side([&] {
      const ProductJob indexer[] = {{weights.indexer_q, a.indexer_q, indexer_dim},
                                    {weights.indexer_k, a.indexer_k, config.indexer_dim}};
      multiply_f32(indexer, block_input().f32, rows(), side, b.side_products);
    });
  }
  multiply({{weights.q, a.q, 2 * heads_dim}, {weights.k, a.k, kv_dim}, {weights.v, a.v, kv_dim}},
           block_input(), rows(), stream, b.products);
  if (sparse) join_side();
  attention_prepare({.shape = attention_of,
                     .cache = cache,
                     .window = window,
                     .q = q,
                     .k = {a.k, kv_dim},
                     .v = {a.v, kv_dim},
                     .indexer_q = indexer_q,
                     .indexer_k = {a.indexer_k, config.indexer_dim},
                     .q_norm = weights.q_norm,
                     .k_norm = weights.k_norm,
                     .indexer_q_norm = weights.indexer_q_norm,
                     .indexer_k_norm = weights.indexer_k_norm},
                    stream, {captures, layer});
  if (sparse) {
    attention_blocks({.shape = attention_of,
                      .cache = cache,
                      .window = window,
                      .indexer_q = indexer_q,
                      .scores = a.block_scores,
                      .score_rows = a.score_rows,
                      .chosen = a.chosen},
                     stream);
  }
  attention({.shape = attention_of,
             .cache = cache,
             .window = window,
             .q = q,
             .chosen = sparse ? a.chosen : nullptr,
             .scratch = a.scores,
             .score_rows = a.score_rows,
             .out = {a.heads, heads_dim},
             .out_q8 = if_quantized(weights.out.type, a.heads_q8)},
            stream);
  multiply({{weights.out, b.block_output, config.hidden}}, {.f32 = {a.heads, heads_dim}, .q8 = a.heads_q8},
           rows(), stream, b.products);
}

void Forward::Pass::shared_expert(const DeviceMoe& weights) {
  const MoeBuffers& m = b.moe;
  const uint32_t width = config.shared_width;
  if (rows() <= kFusedSharedRowsMax && weights.shared_gate.type == weights.shared_up.type &&
      quant::is_quantized(weights.shared_gate.type) && quant::is_quantized(weights.shared_down.type)) {
    multiply_q8_silu({weights.shared_gate, m.shared_gate, width}, weights.shared_up, b.block_input_q8, rows(),
                     side);
    multiply_q8_floats({weights.shared_down, m.shared, config.hidden}, {m.shared_gate, width}, rows(), side);
    return;
  }
  multiply({{weights.shared_gate, m.shared_gate, width}, {weights.shared_up, m.shared_up, width}},
           block_input(), rows(), side, b.side_products);
  const FloatRows gate{m.shared_gate, width};
  silu_multiply({.gate = gate,
                 .up = {m.shared_up, width},
                 .rows = rows(),
                 .cols = width,
                 .out = quant::is_quantized(weights.shared_down.type) ? FloatRows() : gate,
                 .q8 = if_quantized(weights.shared_down.type, m.shared_q8)},
                side);
  multiply({{weights.shared_down, m.shared, config.hidden}}, {.f32 = gate, .q8 = m.shared_q8}, rows(), side,
           b.side_products);
}

void Forward::Pass::compute_list(const DeviceMoe& weights, uint32_t list) {
  compute_experts({.experts = weights.experts,
                   .hits = b.moe.lists.list(list),
                   .rows = rows(),
                   .top_k = config.experts_used,
                   .groups_max = list == 0 ? 0 : o.batch_experts,
                   .x_q8 = b.block_input_q8,
                   .x = {b.block_input, config.hidden},
                   .parts = b.moe.parts,
                   .workspace = b.moe.workspace},
                  stream);
}

void Forward::Pass::routed_experts(uint32_t layer, const DeviceMoe& weights) {
  const MoeBuffers& m = b.moe;
  const uint64_t pairs = uint64_t{rows()} * config.experts_used;
  uint16_t* ids = b.ids + layer * pairs;
  const ProductJob routers[] = {{weights.router, m.logits, weights.router.rows},
                                {weights.shared_router, m.shared_router, 1}};
  multiply_f32(routers, block_input().f32, rows(), stream, b.products);
  const bool q8 =
      quant::is_quantized(weights.experts.gate.type) && quant::is_quantized(weights.experts.up.type);
  const uint64_t places_at = uint64_t{layer} * o.experts_max;
  DispatchArgs dispatch{
      .ids = ids,
      .rows = rows(),
      .top_k = config.experts_used,
      .experts = weights.experts.count,
      .layer = layer,
      .places = {.places = (shape.streams_experts ? o.places_with_copies : o.places_with_boards) + places_at,
                 .arena = o.arena,
                 .slot_bytes = o.slot_bytes,
                 .staging = o.staging,
                 .staging_slots = o.staging_slots,
                 .batch = o.batch_experts},
      .lists = m.lists,
      .scratch = m.scratch,
      .boards = shape.uses_boards ? o.boards : nullptr,
      .tickets = o.tickets,
      .board_pairs = m.board_pairs,
      .activations = q8 ? shm::ActivationKind::kQ8 : shm::ActivationKind::kF32,
      .x_q8 = b.block_input_q8,
      .x = {b.block_input, config.hidden},
      .hidden = config.hidden,
      .remote = m.remote};
  if (!shape.streams_experts) dispatch.lists.count = 1;
  route_and_dispatch({.logits = {m.logits, weights.router.rows},
                      .rows = rows(),
                      .experts = weights.router.rows,
                      .top_k = config.experts_used,
                      .ids = ids,
                      .weights = m.weights,
                      .forced_ids = input.forced_ids == nullptr ? nullptr : input.forced_ids + layer * pairs},
                     dispatch, stream);
  marks.mark(Stage::kRoute, stream);
  compute_list(weights, 0);
  marks.mark(Stage::kVramExperts, stream);
  if (shape.streams_experts) {
    for (uint32_t batch = 0; batch < experts->batches(layer); ++batch) {
      experts->await_next(stream);
      compute_list(weights, 1 + batch);
      experts->release(stream);
    }
    marks.mark(Stage::kVramExperts, stream);
  }
  if (shape.uses_boards) {
    const bool head_is_next = layer + 1 == config.layers;
    const uint64_t ahead_bytes =
        head_is_next && shape.logit_rows == 0 ? 0 : second_level_cache_bytes() / kAheadShare;
    await_boards({.boards = o.boards,
                  .tickets = o.tickets,
                  .stop = o.stop,
                  .ahead = weights_ahead(o.model, layer + 1, ahead_bytes)},
                 stream);
    marks.mark(Stage::kCpuWait, stream);
  }
}

void Forward::Pass::moe(uint32_t layer) {
  const DeviceMoe& weights = o.model.layers[layer].moe;
  fork_side([&] { shared_expert(weights); });
  routed_experts(layer, weights);
  join_side();
  combine({.rows = rows(),
           .hidden = config.hidden,
           .top_k = config.experts_used,
           .streams = 0,
           .weights = b.moe.weights,
           .parts = b.moe.parts,
           .remote = b.moe.remote,
           .shared = {b.moe.shared, config.hidden},
           .shared_gate = b.moe.shared_router,
           .y = b.block_output},
          stream);
  marks.mark(Stage::kVramExperts, stream);
}

void Forward::Pass::head() {
  if (shape.logit_rows == 0) return;
  add_to_streams({.pending = pending,
                  .streams = b.streams,
                  .streams_count = config.streams,
                  .hidden = config.hidden,
                  .rows = rows()},
                 stream);
  gather_streams({.from = b.streams,
                  .chosen = input.chosen,
                  .to = b.gathered,
                  .stream_dim = config.stream_dim(),
                  .count = shape.logit_rows},
                 stream);
  read_streams({.mixer = o.model.final_mixer,
                .pending = {},
                .streams = b.gathered,
                .scratch = b.mixer,
                .inject = nullptr,
                .input = b.block_input,
                .input_q8 = if_quantized(o.model.head.type, b.block_input_q8),
                .rows = shape.logit_rows},
               stream);
  multiply({{o.model.head, b.logits, config.vocab}}, block_input(), shape.logit_rows, stream, b.products);
  marks.mark(Stage::kHead, stream);
  sample({.logits = b.logits,
          .rows = shape.logit_rows,
          .vocab = config.vocab,
          .requests = input.samples,
          .changes = o.changes,
          .masks = o.masks,
          .scratch = b.sampling,
          .results = o.results},
         stream);
  marks.mark(Stage::kCommit, stream);
}

Result<Forward> Forward::create(ForwardOptions options) {
  Forward forward(std::move(options));
  TRY_CUDA(cudaStreamCreateWithFlags(&forward.side_, cudaStreamNonBlocking));
  for (cudaEvent_t* event : {&forward.fork_, &forward.join_})
    TRY_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  return forward;
}

Forward::Forward(Forward&& other) noexcept
    : options_(std::move(other.options_)),
      side_(std::exchange(other.side_, nullptr)),
      fork_(std::exchange(other.fork_, nullptr)),
      join_(std::exchange(other.join_, nullptr)) {}

Forward::~Forward() {
  if (side_ != nullptr) cudaStreamDestroy(side_);
  for (cudaEvent_t event : {fork_, join_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

void Forward::enqueue(const WindowShape& shape, const WindowInput& input, ExpertStream* experts,
                      StageMarks& marks, cudaStream_t stream, const std::function<void()>& before_pages,
                      std::span<const StateCapture> captures) {
  const model::ModelConfig& config = options_.weights->config;
  Pass pass{.o = options_,
            .config = config,
            .b = options_.buffers,
            .shape = shape,
            .input = input,
            .experts = experts,
            .marks = marks,
            .stream = stream,
            .side = side_,
            .fork = fork_,
            .join = join_,
            .window = {.row_count = shape.rows,
                       .segment_count = shape.segments,
                       .rows = input.rows,
                       .segments = input.segments,
                       .turns = input.turns,
                       .block_turns = input.block_turns},
            .captures = captures};
  marks.begin(stream);
  bool may_touch_pages = before_pages == nullptr;
  pass.embed();
  marks.mark(Stage::kHead, stream);
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const DeviceLayer& weights = options_.model.layers[layer];
    if (static_cast<int32_t>(layer) == config.ngram_layer) {
      pass.ngram();
      marks.mark(Stage::kNgram, stream);
    }
    pass.read(weights.mix_attn, 0);
    marks.mark(Stage::kMixers, stream);
    if (weights.kind == model::LayerKind::kRecurrent) {
      pass.delta(layer);
      marks.mark(Stage::kDeltaNet, stream);
    } else {
      if (!std::exchange(may_touch_pages, true)) before_pages();
      pass.attend(layer);
      marks.mark(Stage::kAttention, stream);
    }
    pass.read(weights.mix_ffn, 1);
    marks.mark(Stage::kMixers, stream);
    pass.moe(layer);
  }
  pass.head();
}

}  // namespace strata::gpu_worker::cuda
