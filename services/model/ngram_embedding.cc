#include "services/model/ngram_embedding.h"

#include <algorithm>
#include <cmath>

#include "services/model/row_kernels.h"

namespace strata::model {
namespace {

constexpr uint32_t kChannelsPerPiece = 2048;
constexpr float kGateFloor = 1e-6f;

// sigmoid( sign(u) * sqrt(max(|u|, 1e-6)) ), sign(0) = 0.
float gate_of(float u) {
  const float root = std::sqrt(std::max(std::fabs(u), kGateFloor));
  return quant::sigmoid_f32(u > 0 ? root : u < 0 ? -root : u);  // u is 0 here, or NaN, which stays
}

}  // namespace

void ngram_table_rows(const ModelConfig& config, std::span<const int32_t> context, std::span<uint64_t> rows) {
  bool cut = false;
  uint64_t mixed = static_cast<uint64_t>(context[0]) * config.ngram_multipliers[0];
  for (uint32_t n = 2; n <= config.ngram_size; ++n) {
    cut = cut || context[n - 1] == config.ngram_cut_token;
    const int32_t token = cut ? config.ngram_cut_token : context[n - 1];
    mixed ^= static_cast<uint64_t>(token) * config.ngram_multipliers[n - 1];
    for (uint32_t h = (n - 2) * config.ngram_heads; h < (n - 1) * config.ngram_heads; ++h) {
      rows[h] = config.ngram_offsets[h] + mixed % config.ngram_sizes[h];
    }
  }
}

void look_up_ngram(const ModelConfig& config, const NgramWeights& weights, std::span<const int32_t> context,
                   std::span<uint64_t> rows, float* embedded) {
  ngram_table_rows(config, context, rows);
  const uint32_t width = config.ngram_row;
  for (std::size_t h = 0; h < rows.size(); ++h) {
    const std::byte* stored = weights.table.data + rows[h] * weights.table.row_bytes;
    quant::dequantize_row(weights.table.type, stored, embedded + h * width, width);
  }
  if (weights.table.scale == 1.0f) return;
  for (uint32_t i = 0; i < config.hidden; ++i) embedded[i] *= weights.table.scale;
}

NgramEmbedding::NgramEmbedding(const ModelConfig& config, quant::Numerics numerics, uint32_t rows_max,
                               Parallel& parallel)
    : config_(config),
      numerics_(numerics),
      parallel_(parallel),
      table_rows_(std::size_t{rows_max} * config.ngram_rows()),
      embedded_(std::size_t{rows_max} * config.hidden),
      keys_(std::size_t{rows_max} * config.stream_dim()),
      values_(std::size_t{rows_max} * config.hidden),
      queries_(std::size_t{rows_max} * config.stream_dim()),
      gated_(std::size_t{rows_max} * config.stream_dim()),
      conv_input_(std::size_t{rows_max} * config.stream_dim()) {}

std::span<const uint64_t> NgramEmbedding::table_rows(uint32_t row) const {
  return std::span(table_rows_).subspan(std::size_t{row} * config_.ngram_rows(), config_.ngram_rows());
}

uint64_t NgramEmbedding::row_bytes(const ModelConfig& config) {
  return config.ngram_rows() * sizeof(uint64_t) +
         (2 * uint64_t{config.hidden} + 4 * uint64_t{config.stream_dim()}) * sizeof(float);
}

void NgramEmbedding::run(const NgramWeights& weights, const Window& window, float* streams) {
  look_up(weights, window);
  quant::Activations embedded(embedded_.data(), window.rows(), config_.hidden, config_.hidden);
  multiply_all(parallel_, {{&weights.key, &embedded, keys_.data(), config_.stream_dim(), numerics_},
                           {&weights.value, &embedded, values_.data(), config_.hidden, numerics_}});
  gate_values(weights, window.rows(), streams);
  convolve(weights, window, streams);
}

void NgramEmbedding::look_up(const NgramWeights& weights, const Window& window) {
  const uint32_t heads = config_.ngram_rows(), before = config_.ngram_size - 1;
  parallel_.run(window.rows(), 4, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      const Segment& segment = window.segments[window.places[row].segment];
      const auto& history = segment.sequence->ngram_context;  // (before), oldest first
      const uint32_t index = row - segment.row_begin;
      int32_t context[kNgramSizeMax];
      for (uint32_t back = 0; back <= before; ++back) {
        context[back] = back <= index ? window.tokens[row - back] : history[before + index - back];
      }
      const auto rows = std::span(table_rows_).subspan(std::size_t{row} * heads, heads);
      look_up_ngram(config_, weights, {context, config_.ngram_size}, rows,
                    embedded_.data() + std::size_t{row} * config_.hidden);
    }
  });
  for (const Segment& segment : window.segments) {
    auto& history = segment.sequence->ngram_context;
    for_each_stretch(window, segment, [&](const Segment& stretch, const FixedState* captured) {
      const uint32_t fresh = std::min(stretch.row_count, before);
      std::move(history.begin() + fresh, history.end(), history.begin());
      const auto last = window.tokens.begin() + stretch.row_begin + stretch.row_count;
      std::copy(last - fresh, last, history.end() - fresh);
      if (captured != nullptr) std::ranges::copy(history, captured->ngram_context);
    });
  }
}

// gated = sigmoid gate of (normed key . normed streams) times value, per stream; the convolution's input is
// its norm.
void NgramEmbedding::gate_values(const NgramWeights& weights, uint32_t rows, const float* streams) {
  const uint32_t hidden = config_.hidden;
  const float root_hidden = std::sqrt(static_cast<float>(hidden));
  parallel_.run(rows * config_.streams, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const std::size_t at = std::size_t{i} * hidden;
      const std::size_t of_stream = std::size_t{i % config_.streams} * hidden;
      float* key = keys_.data() + at;
      float* query = queries_.data() + at;
      float* gated = gated_.data() + at;
      rms_norm(key, weights.norm_key.data + of_stream, config_.eps, hidden, key);
      rms_norm(streams + at, weights.norm_query.data + of_stream, config_.eps, hidden, query);
      const float gate = gate_of(quant::dot_f32(key, query, hidden) / root_hidden);
      const float* value = values_.data() + std::size_t{i / config_.streams} * hidden;
      for (uint32_t j = 0; j < hidden; ++j) gated[j] = gate * value[j];
      rms_norm(gated, weights.norm_conv.data + of_stream, config_.eps, hidden, conv_input_.data() + at);
    }
  });
}

void NgramEmbedding::convolve(const NgramWeights& weights, const Window& window, float* streams) {
  const uint32_t width = config_.stream_dim(), taps_count = config_.ngram_taps,
                 history_rows = config_.ngram_history();
  for_each_row_piece(parallel_, window.rows(), width, kChannelsPerPiece,
                     [&](uint32_t row, uint32_t begin, uint32_t end) {
                       const Segment& segment = window.segments[window.places[row].segment];
                       const HistoryTaps source{conv_input_.data(), segment.sequence->ngram_conv.data(),
                                                width, history_rows};
                       const float* taps[kConvTapsMax];
                       for (uint32_t i = 0; i < taps_count; ++i)
                         taps[i] = source.row(segment, row, config_.ngram_size * (taps_count - 1 - i));
                       const std::size_t at = std::size_t{row} * width;
                       float* convolved = queries_.data() + at;
                       float* added = gated_.data() + at;
                       row_kernels().conv_silu(taps, taps_count, weights.conv.data, begin, end, convolved);
                       for (uint32_t j = begin; j < end; ++j) {
                         added[j] += convolved[j];
                         streams[at + j] += added[j];
                       }
                     });
  for (const Segment& segment : window.segments) {
    std::vector<float>& history = segment.sequence->ngram_conv;
    for_each_stretch(window, segment, [&](const Segment& stretch, const FixedState* captured) {
      append_history(stretch, conv_input_.data(), width, history_rows, history.data());
      if (captured != nullptr) std::ranges::copy(history, captured->ngram_conv);
    });
  }
}

}  // namespace strata::model
