#include "services/model/forward.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>

#include "services/base/check.h"
#include "services/model/delta_net.h"
#include "services/model/moe_block.h"
#include "services/model/ngram_embedding.h"
#include "services/model/rope.h"
#include "services/model/sparse_attention.h"
#include "services/model/stream_mixer.h"
#include "services/model/window.h"

namespace strata::model {
namespace {

uint32_t most_experts(const ModelWeights& weights) {
  uint32_t most = 0;
  for (const LayerWeights& layer : weights.layers) most = std::max(most, layer.moe.experts.count);
  return most;
}

// Adds the time since the last lap to a phase.
class Stopwatch {
 public:
  void lap(double& phase) {
    const auto now = std::chrono::steady_clock::now();
    phase += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000u;  // all ones: infinity or NaN
  uint32_t bad = 0;
  for (const float value : values) bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

}  // namespace

struct Forward::Impl {
  Impl(const ModelWeights& weights_in, quant::Numerics numerics_in, uint32_t rows_max_in,
       Parallel& parallel_in)
      : weights(weights_in),
        config(weights_in.config),
        numerics(numerics_in),
        rows_max(rows_max_in),
        parallel(parallel_in),
        rope(config.rope),
        mixer(config, rows_max, parallel),
        delta_net(config, numerics, rows_max, parallel),
        attention(config, numerics, rows_max, rope, parallel),
        moe(config, most_experts(weights), numerics, rows_max, parallel),
        streams(std::size_t{rows_max} * config.stream_dim()),
        block_input(std::size_t{rows_max} * config.hidden),
        block_output(std::size_t{rows_max} * config.hidden),
        final_streams(std::size_t{rows_max} * config.stream_dim()) {
    if (config.ngram_layer >= 0) ngram.emplace(config, numerics, rows_max, parallel);
    window.segments.reserve(rows_max);
    window.captures.reserve(rows_max);
    window.places.reserve(rows_max);
    window.tokens.reserve(rows_max);
    window.turns.resize(std::size_t{rows_max} * 2 * rope.pairs());
    routing_places.reserve(rows_max);
  }

  Status plan(std::span<const WindowRow> rows, std::size_t logit_count);
  Status add_row(const WindowRow& row);
  void embed();
  void run_layer(uint32_t layer, MoeExecutor& experts, Stopwatch& watch);
  std::span<const uint16_t> chosen_experts(uint32_t layer);
  void run_head(std::span<const WindowRow> rows, std::span<float> logits, int32_t* bad_row);

  const ModelWeights& weights;
  const ModelConfig& config;
  const quant::Numerics numerics;
  const uint32_t rows_max;
  Parallel& parallel;
  const Rope rope;
  StreamMixer mixer;
  DeltaNet delta_net;
  SparseAttention attention;
  MoeBlock moe;
  std::optional<NgramEmbedding> ngram;
  ForwardObserver observer;
  RoutingOverride* routing = nullptr;
  PhaseSeconds phases;

  Window window;
  std::vector<float> streams;                // (rows, C, H)
  std::vector<float> block_input;            // (rows, H)
  std::vector<float> block_output;           // (rows, H)
  std::vector<float> final_streams;          // (rows that want logits, C, H)
  std::vector<RoutingPlace> routing_places;  // (rows)
  std::vector<uint16_t> routing_ids;         // (rows, k) of one layer
};

Forward::Forward(const ModelWeights& weights, quant::Numerics numerics, uint32_t window_rows_max,
                 Parallel& parallel)
    : impl_(std::make_unique<Impl>(weights, numerics, window_rows_max, parallel)) {}

Forward::~Forward() = default;

uint64_t Forward::bytes_needed(const ModelWeights& weights, uint32_t window_rows_max,
                               uint32_t context_tokens) {
  const ModelConfig& config = weights.config;
  uint64_t row = StreamMixer::row_bytes(config) + DeltaNet::row_bytes(config) +
                 SparseAttention::row_bytes(config) + MoeBlock::row_bytes(config, most_experts(weights));
  if (config.ngram_layer >= 0) row += NgramEmbedding::row_bytes(config);
  // Streams, inputs and outputs of blocks, and the rows' places.
  row += 2 * (uint64_t{config.stream_dim()} + config.hidden) * sizeof(float);
  row += sizeof(RowPlace) + sizeof(int32_t) + sizeof(Segment) + sizeof(Capture) + sizeof(RoutingPlace) +
         config.rope.dims / 2 * 2 * sizeof(float) + config.experts_used * sizeof(uint16_t);
  // The input of a block in 8 bits, and beside it what its last product reads.
  const uint32_t inner = std::max({config.value_dim(), config.heads * config.head_dim, config.shared_width});
  row += quant::q8_row_bytes(config.hidden) + quant::q8_row_bytes(inner);
  return window_rows_max * row + SparseAttention::tile_bytes(config, window_rows_max, context_tokens);
}

void Forward::observe(ForwardObserver observer) { impl_->observer = std::move(observer); }

void Forward::override_routing(RoutingOverride* routing) { impl_->routing = routing; }

PhaseSeconds Forward::take_phases() { return std::exchange(impl_->phases, PhaseSeconds()); }

// Checks the rows and arranges them by sequence; nothing has changed when it fails.
Status Forward::Impl::plan(std::span<const WindowRow> rows, std::size_t logit_count) {
  if (rows.size() > rows_max)
    return fail(Code::kInvalidArgument, "{} rows in a window of at most {}", rows.size(), rows_max);
  const auto wanted = static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const WindowRow& row) { return row.want_logits; }));
  if (logit_count < wanted * config.vocab) {
    return fail(Code::kInvalidArgument, "room for {} logits, {} rows want {} each", logit_count, wanted,
                config.vocab);
  }
  window.segments.clear();
  window.captures.clear();
  window.places.clear();
  window.tokens.clear();
  routing_places.clear();
  for (const WindowRow& row : rows) TRY_OK(add_row(row));
  return {};
}

Status Forward::Impl::add_row(const WindowRow& row) {
  const uint32_t index = window.rows();
  if (row.sequence == nullptr) return fail(Code::kInvalidArgument, "row {} has no sequence", index);
  if (row.token < 0 || static_cast<uint32_t>(row.token) >= config.vocab) {
    return fail(Code::kInvalidArgument, "row {}: token {}, the vocabulary has {}", index, row.token,
                config.vocab);
  }
  if (window.segments.empty() || window.segments.back().sequence != row.sequence) {
    for (const Segment& segment : window.segments) {
      if (segment.sequence == row.sequence) {
        return fail(Code::kInvalidArgument, "row {}: the rows of a sequence are not consecutive", index);
      }
    }
    window.segments.push_back(
        {.sequence = row.sequence, .row_begin = index, .position = row.sequence->position_});
  }
  Segment& segment = window.segments.back();
  const uint32_t position = segment.position + segment.row_count;
  if (position >= row.sequence->capacity_) {
    return fail(Code::kOutOfRange, "row {}: position {} of a sequence with room for {} tokens", index,
                position, row.sequence->capacity_);
  }
  ++segment.row_count;
  window.places.push_back(
      {.segment = static_cast<uint32_t>(window.segments.size()) - 1, .position = position});
  window.tokens.push_back(row.token);
  if (row.capture != nullptr) window.captures.push_back({.row = index, .to = row.capture});
  routing_places.push_back({.sequence = row.routing_sequence, .position = position});
  return {};
}

Status Forward::run(std::span<const WindowRow> rows, MoeExecutor& experts, std::span<float> logits,
                    int32_t* bad_row, const std::function<void()>& before_pages) {
  Impl& impl = *impl_;
  if (bad_row != nullptr) *bad_row = -1;
  TRY_OK(impl.plan(rows, logits.size()));
  if (rows.empty()) return {};
  Stopwatch watch;
  impl.embed();
  watch.lap(impl.phases.head);
  bool may_touch_pages = before_pages == nullptr;
  for (uint32_t layer = 0; layer < impl.config.layers; ++layer) {
    if (impl.weights.layers[layer].kind == LayerKind::kAttention && !std::exchange(may_touch_pages, true))
      before_pages();
    impl.run_layer(layer, experts, watch);
  }
  for (const Segment& segment : impl.window.segments) segment.sequence->position_ += segment.row_count;
  impl.run_head(rows, logits, bad_row);
  watch.lap(impl.phases.head);
  return {};
}

// Every stream begins with the token's embedding.
void Forward::Impl::embed() {
  parallel.run(window.rows(), 4, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      float* first = streams.data() + std::size_t{row} * config.stream_dim();
      const std::byte* stored = weights.embedding.row(static_cast<uint32_t>(window.tokens[row]));
      quant::dequantize_row(weights.embedding.type, stored, first, config.hidden);
      if (weights.embedding.scale != 1.0f) {
        for (uint32_t i = 0; i < config.hidden; ++i) first[i] *= weights.embedding.scale;
      }
      for (uint32_t c = 1; c < config.streams; ++c)
        std::copy_n(first, config.hidden, first + std::size_t{c} * config.hidden);
      rope.turn_at(window.places[row].position, window.turns.data() + std::size_t{row} * 2 * rope.pairs());
    }
  });
}

void Forward::Impl::run_layer(uint32_t layer, MoeExecutor& experts, Stopwatch& watch) {
  const LayerWeights& w = weights.layers[layer];
  const uint32_t rows = window.rows();
  if (static_cast<int32_t>(layer) == config.ngram_layer) {
    ngram->run(weights.ngram, window, streams.data());
    for (uint32_t row = 0; observer.ngram_rows && row < rows; ++row)
      observer.ngram_rows(row, ngram->table_rows(row));
    if (observer.ngram_out) observer.ngram_out(rows, ngram->added());
    watch.lap(phases.ngram);
  }

  mixer.read(w.mix_attn, streams.data(), rows, block_input.data());
  watch.lap(phases.mixers);
  {
    quant::Activations input(block_input.data(), rows, config.hidden, config.hidden);
    if (w.kind == LayerKind::kRecurrent) {
      delta_net.run(w.delta, layer, window, input, block_output.data());
      watch.lap(phases.delta_net);
    } else {
      attention.run(w.attention, layer, window, input, block_output.data(), observer.blocks);
      watch.lap(phases.attention);
    }
  }
  mixer.add(block_output.data(), rows, streams.data());

  mixer.read(w.mix_ffn, streams.data(), rows, block_input.data());
  watch.lap(phases.mixers);
  quant::Activations input(block_input.data(), rows, config.hidden, config.hidden);
  moe.route_rows(w.moe, input, chosen_experts(layer));
  if (observer.router) observer.router(layer, rows, moe.ids(), moe.weights());
  watch.lap(phases.route);
  moe.run(w.moe, layer, input, experts, block_output.data());
  watch.lap(phases.experts);
  mixer.add(block_output.data(), rows, streams.data());
  watch.lap(phases.mixers);
  if (observer.streams) observer.streams(layer, rows, streams.data());
}

// What the override says of the layer; empty without one.
std::span<const uint16_t> Forward::Impl::chosen_experts(uint32_t layer) {
  if (routing == nullptr) return {};
  const std::size_t used = config.experts_used;
  routing_ids.resize(window.rows() * used);
  for (std::size_t row = 0; row < routing_places.size(); ++row)
    routing->choose(layer, routing_places[row], std::span(routing_ids).subspan(row * used, used));
  return routing_ids;
}

// The final read and the head, for the rows that want logits only.
void Forward::Impl::run_head(std::span<const WindowRow> rows, std::span<float> logits, int32_t* bad_row) {
  const std::size_t wide = config.stream_dim();
  uint32_t wanted = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].want_logits) continue;
    std::copy_n(streams.data() + row * wide, wide, final_streams.data() + wanted * wide);
    ++wanted;
  }
  if (wanted == 0) return;
  mixer.read(weights.final_mixer, final_streams.data(), wanted, block_input.data());
  quant::Activations input(block_input.data(), wanted, config.hidden, config.hidden);
  multiply_all(parallel, {{&weights.head, &input, logits.data(), config.vocab, numerics}});
  if (bad_row == nullptr) return;
  uint32_t next = 0;
  for (std::size_t row = 0; row < rows.size() && *bad_row < 0; ++row) {
    if (!rows[row].want_logits) continue;
    if (!all_finite(logits.subspan(std::size_t{next++} * config.vocab, config.vocab)))
      *bad_row = static_cast<int32_t>(row);
  }
}

}  // namespace strata::model
