#pragma once
// An attention layer on host and device side by side, from projections on, and plain loops that say what
// rounded keys and values give.

#include <map>
#include <memory>

#include "gpu-worker/cuda/attention.h"
#include "gpu-worker/cuda/attention_blocks.h"
#include "gpu-worker/cuda/attention_prepare.h"
#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/sparse_attention.h"

namespace strata::gpu_worker::cuda::tests {

struct LayerCase {
  uint32_t heads = 4, kv_heads = 2, head_dim = 32;
  uint32_t indexer_heads = 2, indexer_dim = 16;
  uint32_t block_tokens = 4, top_k_tokens = 16;
  uint32_t rope_dims = 8;
  uint32_t capacity = 128;
  uint32_t score_rows = 1000;
};

// One head as the format keeps it.
inline std::vector<float> rounded_head(KvFormat format, const float* head, uint32_t dim) {
  std::vector<float> out(head, head + dim);
  if (format == KvFormat::kF16) {
    for (float& value : out) value = static_cast<float>(static_cast<_Float16>(value));
  } else if (format == KvFormat::kQ8) {
    float largest = 0;
    for (const float value : out) largest = std::max(largest, std::fabs(value));
    const float inverse = 127.0f / largest, scale = largest / 127.0f;
    for (float& value : out)
      value = static_cast<float>(static_cast<int>(std::nearbyint(value * inverse))) * scale;
    if (largest < 0x1p-100f) std::fill(out.begin(), out.end(), 0.0f);
  }
  return out;
}

class LayerTwins {
 public:
  static constexpr uint32_t kRowsMax = 128, kSequences = 2, kPadding = 4;  // floats between rows

  LayerTwins(const LayerCase& layer, KvFormat format, uint64_t seed)
      : layer_(layer), random_(seed), parallel_(2), rope_({.dims = layer.rope_dims, .base = 10000.0f}) {
    const uint32_t d = layer.head_dim, di = layer.indexer_dim, hidden = layer.heads * d;
    config_.layers = 1;
    config_.hidden = hidden;
    config_.layer_kinds = {model::LayerKind::kAttention};
    config_.heads = layer.heads;
    config_.kv_heads = layer.kv_heads;
    config_.head_dim = d;
    config_.rope = {.dims = layer.rope_dims, .base = 10000.0f};
    config_.indexer_heads = layer.indexer_heads;
    config_.indexer_dim = di;
    config_.indexer_top_k = layer.top_k_tokens;
    config_.block_tokens = {layer.block_tokens};
    config_.eps = 1e-6f;
    shape_ = {.heads = layer.heads,
              .kv_heads = layer.kv_heads,
              .head_dim = d,
              .rope_pairs = layer.rope_dims / 2,
              .block_tokens = layer.block_tokens,
              .indexer_heads = layer.indexer_heads,
              .indexer_dim = di,
              .top_k_tokens = layer.top_k_tokens,
              .eps = config_.eps};
    q_ = test_matrix(random_, gguf::TensorType::kF32, layer.heads * 2 * d, hidden);
    k_ = test_matrix(random_, gguf::TensorType::kF32, layer.kv_heads * d, hidden);
    v_ = test_matrix(random_, gguf::TensorType::kF32, layer.kv_heads * d, hidden);
    indexer_q_ = test_matrix(random_, gguf::TensorType::kF32, layer.indexer_heads * di, hidden);
    indexer_k_ = test_matrix(random_, gguf::TensorType::kF32, di, hidden);
    identity_.assign(std::size_t{hidden} * hidden, 0.0f);
    for (uint32_t i = 0; i < hidden; ++i) identity_[std::size_t{i} * hidden + i] = 1.0f;
    for (std::vector<float>* norm : {&q_norm_, &k_norm_}) *norm = random_floats(random_, d);
    for (std::vector<float>* norm : {&indexer_q_norm_, &indexer_k_norm_}) *norm = random_floats(random_, di);
    weights_ = {.q = q_.host,
                .k = k_.host,
                .v = v_.host,
                .out = {.type = gguf::TensorType::kF32,
                        .rows = hidden,
                        .cols = hidden,
                        .data = reinterpret_cast<const std::byte*>(identity_.data()),
                        .row_bytes = std::size_t{hidden} * sizeof(float)},
                .q_norm = {q_norm_.data(), d},
                .k_norm = {k_norm_.data(), d},
                .indexer_q = indexer_q_.host,
                .indexer_k = indexer_k_.host,
                .indexer_q_norm = {indexer_q_norm_.data(), di},
                .indexer_k_norm = {indexer_k_norm_.data(), di}};
    host_ = std::make_unique<model::SparseAttention>(config_, quant::Numerics::kExact, kRowsMax, rope_,
                                                     parallel_);
    for (uint32_t i = 0; i < kSequences; ++i)
      sequences_.push_back(std::make_unique<model::SequenceState>(config_, layer.capacity));
    make_cache(format);
  }

  // Runs the given numbers of rows of the sequences on both sides, and captures the states behind the rows
  // `captured` of the window.
  void run(const std::vector<uint32_t>& row_counts, const std::vector<uint32_t>& captured = {}) {
    std::vector<model::SequenceState*> sequences;
    for (const auto& sequence : sequences_) sequences.push_back(sequence.get());
    window_ = test_window(random_, sequences, row_counts, 100);
    captures_ = std::make_unique<CapturedStates>(captured, window_);
    const uint32_t rows = window_.view.row_count, pairs = rope_.pairs(), hidden = config_.hidden;
    const std::vector<float> input = random_floats(random_, std::size_t{rows} * hidden, 4.0f);
    std::vector<float> block_turns(std::size_t{rows} * 2 * pairs);
    window_.host.turns.resize(block_turns.size());
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t position = window_.host.places[row].position;
      rope_.turn_at(position, window_.host.turns.data() + std::size_t{row} * 2 * pairs);
      if (layer_.block_tokens > 0 && (position + 1) % layer_.block_tokens == 0)
        rope_.turn_at(position + 1 - layer_.block_tokens, block_turns.data() + std::size_t{row} * 2 * pairs);
    }
    quant::Activations activations(input.data(), rows, hidden, hidden);
    host_out_.assign(std::size_t{rows} * hidden, 0.0f);
    host_blocks_.clear();
    host_->run(weights_, 0, window_.host, activations, host_out_.data(),
               [&](uint32_t, uint32_t row, std::span<const uint32_t> blocks) {
                 host_blocks_[row].assign(blocks.begin(), blocks.end());
               });
    run_device(activations, block_turns);
  }

  void expect_same_cache() const {
    const uint32_t kv_dim = layer_.kv_heads * layer_.head_dim;
    const auto k = cached(cache_k_, cache_k_scales_), v = cached(cache_v_, cache_v_scales_);
    const auto pooled = values_of(pooled_), raw = values_of(raw_);
    for (uint32_t i = 0; i < kSequences; ++i) {
      const model::AttentionState& state = sequences_[i]->attention[0];
      const uint32_t position = sequences_[i]->position_, index = kSequences - 1 - i, d = layer_.head_dim;
      for (std::size_t at = 0; at < std::size_t{position} * kv_dim; at += d) {
        const std::size_t there = std::size_t{index} * layer_.capacity * kv_dim + at;
        const std::vector<float> key(k.begin() + there, k.begin() + there + d),
            value(v.begin() + there, v.begin() + there + d);
        expect_same_bits(key, rounded_head(cache_.format, state.k.data() + at, d), "key");
        expect_same_bits(value, rounded_head(cache_.format, state.v.data() + at, d), "value");
      }
      if (layer_.block_tokens == 0) continue;
      const std::size_t pooled_count = std::size_t{position / layer_.block_tokens} * layer_.indexer_dim;
      const std::size_t raw_count = std::size_t{position % layer_.block_tokens} * layer_.indexer_dim;
      const auto part = [&](const std::vector<float>& all, std::size_t stride, std::size_t count) {
        return std::vector<float>(all.begin() + index * stride, all.begin() + index * stride + count);
      };
      expect_same_bits(part(pooled, cache_.pooled_stride, pooled_count), state.pooled.data(), pooled_count,
                       "block key");
      expect_same_bits(part(raw, cache_.raw_stride, raw_count), state.raw.data(), raw_count, "raw key");
    }
  }
  void expect_same_blocks() const {
    if (layer_.block_tokens == 0) return;
    const auto chosen = values_of(chosen_);
    const uint32_t most = shape_.blocks_chosen();
    for (const auto& [row, blocks] : host_blocks_) {
      ASSERT_LE(blocks.size(), most);
      const auto first = chosen.begin() + std::size_t{row} * most;
      ASSERT_EQ(std::vector<uint32_t>(first, first + blocks.size()), blocks) << "row " << row;
    }
  }
  void expect_same_output() const {
    const uint32_t hidden = config_.hidden, rows = window_.view.row_count;
    const std::vector<float> expected = cache_.format == KvFormat::kF32 ? host_out_ : rounded_output();
    const auto out = values_of(out_);
    std::vector<float> compact;
    for (uint32_t row = 0; row < rows; ++row) {
      const auto first = out.begin() + std::size_t{row} * (hidden + kPadding);
      compact.insert(compact.end(), first, first + hidden);
    }
    expect_same_bits(compact, expected, "attention");
    if (layer_.head_dim % 32 == 0) expect_q8_of(values_of(out_q8_), q8_row_stride(hidden), expected, hidden);
  }
  void expect_same() const {
    expect_same_cache();
    captures_->expect_same(std::size_t{layer_.block_tokens - (layer_.block_tokens > 0 ? 1 : 0)} *
                           layer_.indexer_dim);
    expect_same_blocks();
    expect_same_output();
  }

 private:
  void make_cache(KvFormat format) {
    const uint32_t capacity = layer_.capacity, block = layer_.block_tokens;
    const uint64_t bytes = kv_bytes(format, shape_, capacity),
                   scales = kv_scale_floats(format, shape_, capacity);
    cache_k_ = device_zeros<std::byte>(kSequences * bytes);
    cache_v_ = device_zeros<std::byte>(kSequences * bytes);
    cache_k_scales_ = device_zeros<float>(kSequences * scales);
    cache_v_scales_ = device_zeros<float>(kSequences * scales);
    cache_ = {.format = format,
              .capacity = capacity,
              .k = cache_k_.data(),
              .v = cache_v_.data(),
              .k_scales = cache_k_scales_.data(),
              .v_scales = cache_v_scales_.data(),
              .kv_stride = bytes,
              .scales_stride = scales};
    if (block > 0) {
      cache_.pooled_stride = uint64_t{capacity / block} * layer_.indexer_dim;
      cache_.raw_stride = uint64_t{block - 1} * layer_.indexer_dim;
      pooled_ = device_zeros<float>(kSequences * cache_.pooled_stride);
      raw_ = device_zeros<float>(kSequences * cache_.raw_stride);
      cache_.pooled = pooled_.data();
      cache_.raw = raw_.data();
    }
    device_q_norm_ = on_device(q_norm_);
    device_k_norm_ = on_device(k_norm_);
    device_indexer_q_norm_ = on_device(indexer_q_norm_);
    device_indexer_k_norm_ = on_device(indexer_k_norm_);
  }

  // A projection's rows on the device, as the host computes them.
  struct Projected {
    DeviceBuffer<float> values;
    FloatRows rows;
  };
  static Projected project(const quant::Activations& x, const TestMatrix& w) {
    const std::size_t stride = w.host.rows + kPadding;
    std::vector<float> y(x.tokens() * stride, -7.0f);
    quant::multiply(w.host, x, 0, w.host.rows, y.data(), stride, quant::Numerics::kExact);
    Projected projected{on_device(y), {}};
    projected.rows = {projected.values.data(), stride};
    return projected;
  }

  void run_device(const quant::Activations& input, const std::vector<float>& block_turns) {
    const uint32_t rows = window_.view.row_count, hidden = config_.hidden;
    const auto turns = on_device(window_.host.turns), turns_of_blocks = on_device(block_turns);
    window_.view.turns = turns.data();
    window_.view.block_turns = turns_of_blocks.data();
    const Projected q = project(input, q_), k = project(input, k_), v = project(input, v_),
                    iq = project(input, indexer_q_), ik = project(input, indexer_k_);
    attention_prepare({.shape = shape_,
                       .cache = cache_,
                       .window = window_.view,
                       .q = q.rows,
                       .k = k.rows,
                       .v = v.rows,
                       .indexer_q = iq.rows,
                       .indexer_k = ik.rows,
                       .q_norm = device_q_norm_.data(),
                       .k_norm = device_k_norm_.data(),
                       .indexer_q_norm = device_indexer_q_norm_.data(),
                       .indexer_k_norm = device_indexer_k_norm_.data()},
                      nullptr, captures_->of_layer());
    DeviceBuffer<float> scores;
    if (layer_.block_tokens > 0) {
      scores = device_zeros<float>(std::size_t{layer_.score_rows} * (layer_.capacity / layer_.block_tokens));
      chosen_ = device_zeros<uint32_t>(std::size_t{rows} * shape_.blocks_chosen());
      attention_blocks({.shape = shape_,
                        .cache = cache_,
                        .window = window_.view,
                        .indexer_q = iq.rows,
                        .scores = scores.data(),
                        .score_rows = layer_.score_rows,
                        .chosen = chosen_.data()},
                       nullptr);
    }
    const uint32_t score_rows = std::min(layer_.score_rows, rows);
    const auto scratch = device_zeros<float>(score_rows * attention_scratch_floats(shape_, layer_.capacity));
    out_ = device_zeros<float>(std::size_t{rows} * (hidden + kPadding));
    const bool has_q8 = layer_.head_dim % 32 == 0;
    out_q8_ = device_zeros<std::byte>(rows * q8_row_stride(hidden));
    AttentionArgs args{.shape = shape_,
                       .cache = cache_,
                       .window = window_.view,
                       .q = q.rows,
                       .chosen = chosen_.data(),
                       .scratch = scratch.data(),
                       .score_rows = score_rows,
                       .out = {out_.data(), hidden + kPadding},
                       .out_q8 = {has_q8 ? out_q8_.data() : nullptr, q8_row_stride(hidden), hidden}};
    attention(args, nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    queries_ = values_of(q.values);
    expect_no_choice_needed(args);
  }

  // Rows that attend to everything need no list of blocks.
  void expect_no_choice_needed(AttentionArgs args) const {
    if (layer_.block_tokens == 0) return;
    for (const RowInfo& row : window_.row_infos) {
      if ((row.position + 1) / layer_.block_tokens > shape_.blocks_chosen()) return;
    }
    const auto out = device_zeros<float>(out_.size());
    args.chosen = nullptr;
    args.out.data = out.data();
    attention(args, nullptr);
    expect_same_bits(values_of(out), values_of(out_), "without a choice");
  }

  // The cache's values of all sequences as floats.
  std::vector<float> cached(const DeviceBuffer<std::byte>& values, const DeviceBuffer<float>& scales) const {
    const auto bytes = values_of(values);
    const auto of_heads = values_of(scales);
    std::vector<float> out(bytes.size() / kv_value_bytes(cache_.format));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (cache_.format == KvFormat::kF32) std::memcpy(&out[i], bytes.data() + 4 * i, 4);
      if (cache_.format == KvFormat::kF16) {
        _Float16 value;
        std::memcpy(&value, bytes.data() + 2 * i, 2);
        out[i] = static_cast<float>(value);
      }
      if (cache_.format == KvFormat::kQ8)
        out[i] = static_cast<float>(static_cast<int8_t>(bytes[i])) * of_heads[i / layer_.head_dim];
    }
    return out;
  }

  // The layer's formula over rounded keys and values, from the device's queries.
  std::vector<float> rounded_output() const {
    const uint32_t d = layer_.head_dim, nkv = layer_.kv_heads, block = layer_.block_tokens;
    const float factor = 1.0f / std::sqrt(static_cast<float>(d));
    std::vector<float> out;
    for (uint32_t row = 0; row < window_.view.row_count; ++row) {
      const model::RowPlace& place = window_.host.places[row];
      const model::AttentionState& state = window_.host.segments[place.segment].sequence->attention[0];
      std::vector<uint32_t> tokens;
      const auto found = host_blocks_.find(row);
      if (found != host_blocks_.end()) {
        for (const uint32_t b : found->second) {
          for (uint32_t i = 0; i < block; ++i) tokens.push_back(b * block + i);
        }
      }
      for (uint32_t t = block == 0 ? 0 : (place.position + 1) / block * block; t <= place.position; ++t)
        tokens.push_back(t);
      for (uint32_t h = 0; h < layer_.heads; ++h) {
        const float* query =
            queries_.data() + std::size_t{row} * (layer_.heads * 2 * d + kPadding) + h * 2 * d;
        const std::size_t head = h / (layer_.heads / nkv);
        std::vector<float> p, sum(d, 0.0f);
        for (const uint32_t t : tokens) {
          const auto key = rounded_head(cache_.format, state.k.data() + (std::size_t{t} * nkv + head) * d, d);
          p.push_back(quant::dot_f32(query, key.data(), d) * factor);
        }
        const float largest = *std::max_element(p.begin(), p.end());
        for (float& value : p) value = quant::exp_f32(value - largest);
        const float inverse = 1.0f / quant::sum_f32(p.data(), p.size());
        for (std::size_t t = 0; t < tokens.size(); ++t) {
          const auto value =
              rounded_head(cache_.format, state.v.data() + (std::size_t{tokens[t]} * nkv + head) * d, d);
          for (uint32_t i = 0; i < d; ++i) sum[i] = std::fma(p[t], value[i], sum[i]);
        }
        for (uint32_t i = 0; i < d; ++i) out.push_back((sum[i] * inverse) * quant::sigmoid_f32(query[d + i]));
      }
    }
    return out;
  }

  const LayerCase layer_;
  Generator random_;
  model::Parallel parallel_;
  model::Rope rope_;
  model::ModelConfig config_;
  AttentionShape shape_;
  TestMatrix q_, k_, v_, indexer_q_, indexer_k_;
  std::vector<float> identity_, q_norm_, k_norm_, indexer_q_norm_, indexer_k_norm_;
  model::AttentionWeights weights_;
  std::unique_ptr<model::SparseAttention> host_;
  std::vector<std::unique_ptr<model::SequenceState>> sequences_;
  DeviceBuffer<float> device_q_norm_, device_k_norm_, device_indexer_q_norm_, device_indexer_k_norm_;
  DeviceBuffer<std::byte> cache_k_, cache_v_, out_q8_;
  DeviceBuffer<float> cache_k_scales_, cache_v_scales_, pooled_, raw_, out_;
  DeviceBuffer<uint32_t> chosen_;
  AttentionCache cache_;
  // Of the last window.
  TestWindow window_;
  std::unique_ptr<CapturedStates> captures_;
  std::vector<float> host_out_, queries_;
  std::map<uint32_t, std::vector<uint32_t>> host_blocks_;
};

}  // namespace strata::gpu_worker::cuda::tests
