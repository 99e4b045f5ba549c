#include "services/model/delta_net.h"

#include <algorithm>
#include <cmath>

#include "services/model/row_kernels.h"

namespace strata::model {
namespace {

constexpr uint32_t kChannelsPerPiece = 2048;
constexpr float kHeadEps = 1e-6f;  // of the q and k norms, whatever the model's eps is

}  // namespace

DeltaNet::DeltaNet(const ModelConfig& config, quant::Numerics numerics, uint32_t rows_max, Parallel& parallel)
    : config_(config),
      numerics_(numerics),
      parallel_(parallel),
      qkv_(std::size_t{rows_max} * config.qkv_dim()),
      mixed_(std::size_t{rows_max} * config.qkv_dim()),
      gate_(std::size_t{rows_max} * config.value_dim()),
      alpha_(std::size_t{rows_max} * config.value_heads),
      beta_(std::size_t{rows_max} * config.value_heads),
      heads_(std::size_t{rows_max} * config.value_dim()) {}

uint64_t DeltaNet::row_bytes(const ModelConfig& config) {
  return 2 * (uint64_t{config.qkv_dim()} + config.value_dim() + config.value_heads) * sizeof(float);
}

void DeltaNet::run(const DeltaNetWeights& weights, uint32_t layer, const Window& window,
                   quant::Activations& input, float* output) {
  const uint32_t rows = window.rows();
  // Decay and step are kept in float32 from the first product on.
  multiply_all(parallel_,
               {{&weights.qkv, &input, qkv_.data(), config_.qkv_dim(), numerics_},
                {&weights.gate, &input, gate_.data(), config_.value_dim(), numerics_},
                {&weights.alpha, &input, alpha_.data(), config_.value_heads, quant::Numerics::kExact},
                {&weights.beta, &input, beta_.data(), config_.value_heads, quant::Numerics::kExact}});
  convolve(weights, layer, window);
  normalize_heads(rows);
  recur(weights, layer, window);
  quant::Activations heads(heads_.data(), rows, config_.value_dim(), config_.value_dim());
  multiply_all(parallel_, {{&weights.out, &heads, output, config_.hidden, numerics_}});
}

void DeltaNet::convolve(const DeltaNetWeights& weights, uint32_t layer, const Window& window) {
  const uint32_t channels = config_.qkv_dim(), history_rows = config_.conv_taps - 1;
  for_each_row_piece(parallel_, window.rows(), channels, kChannelsPerPiece,
                     [&](uint32_t row, uint32_t begin, uint32_t end) {
                       const Segment& segment = window.segments[window.places[row].segment];
                       const HistoryTaps source{qkv_.data(), segment.sequence->delta[layer].conv.data(),
                                                channels, history_rows};
                       const float* taps[kConvTapsMax];
                       for (uint32_t i = 0; i <= history_rows; ++i)
                         taps[i] = source.row(segment, row, history_rows - i);
                       row_kernels().conv_silu(taps, config_.conv_taps, weights.conv.data, begin, end,
                                               mixed_.data() + std::size_t{row} * channels);
                     });
  for (const Segment& segment : window.segments) {
    std::vector<float>& history = segment.sequence->delta[layer].conv;
    for_each_stretch(window, segment, [&](const Segment& stretch, const FixedState* captured) {
      append_history(stretch, qkv_.data(), channels, history_rows, history.data());
      if (captured != nullptr) std::ranges::copy(history, captured->layers[layer].conv);
    });
  }
}

// q / sqrt(sum q^2 + 1e-6) / sqrt(s), k / sqrt(sum k^2 + 1e-6).
void DeltaNet::normalize_heads(uint32_t rows) {
  const uint32_t key_heads = config_.key_heads, dim = config_.state_dim;
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(dim));
  parallel_.run(rows, 8, [&](uint32_t begin, uint32_t end) {
    for (uint32_t row = begin; row < end; ++row) {
      float* head = mixed_.data() + std::size_t{row} * config_.qkv_dim();
      for (uint32_t i = 0; i < 2 * key_heads; ++i, head += dim) {
        float scale = 1.0f / std::sqrt(quant::sum_squares_f32(head, dim) + kHeadEps);
        if (i < key_heads) scale *= query_scale;
        for (uint32_t j = 0; j < dim; ++j) head[j] *= scale;
      }
    }
  });
}

// Heads of all sequences side by side; the rows of a sequence one after the other.
void DeltaNet::recur(const DeltaNetWeights& weights, uint32_t layer, const Window& window) {
  const uint32_t key_heads = config_.key_heads, value_heads = config_.value_heads, dim = config_.state_dim;
  const uint32_t items = static_cast<uint32_t>(window.segments.size()) * value_heads;
  parallel_.run(items, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t item = begin; item < end; ++item) {
      const Segment& segment = window.segments[item / value_heads];
      const uint32_t head = item % value_heads;
      const std::size_t state_at = std::size_t{head} * dim * dim;
      float* state = segment.sequence->delta[layer].s.data() + state_at;
      const auto step_row = [&](uint32_t row) {
        const float* mixed = mixed_.data() + std::size_t{row} * config_.qkv_dim();
        const std::size_t at = std::size_t{row} * value_heads + head;
        const float step = quant::softplus_f32(alpha_[at] + weights.dt_bias.data[head]);
        float* out = heads_.data() + at * dim;
        row_kernels().delta_step({.s = state,
                                  .q = mixed + std::size_t{head % key_heads} * dim,
                                  .k = mixed + std::size_t{key_heads + head % key_heads} * dim,
                                  .v = mixed + std::size_t{2 * key_heads + head} * dim,
                                  .decay = quant::exp_f32(weights.a.data[head] * step),
                                  .beta = quant::sigmoid_f32(beta_[at]),
                                  .dim = dim,
                                  .out = out});
        rms_norm(out, weights.norm.data, config_.eps, dim, out);
        row_kernels().gate(out, 1.0f, gate_.data() + at * dim, dim);
      };
      for_each_stretch(window, segment, [&](const Segment& stretch, const FixedState* captured) {
        for (uint32_t i = 0; i < stretch.row_count; ++i) step_row(stretch.row_begin + i);
        if (captured != nullptr)
          std::copy_n(state, std::size_t{dim} * dim, captured->layers[layer].s + state_at);
      });
    }
  });
}

}  // namespace strata::model
