// The n-gram layer behind its table against model::NgramEmbedding, to the bit: streams and history, over
// several windows of several sequences.

#include "gpu-worker/cuda/ngram.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/ngram_embedding.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

class Layer {
 public:
  Layer(uint32_t streams, uint32_t hidden, uint32_t taps, uint32_t sequences, uint32_t rows_max)
      : random_(hidden + taps) {
    config_.hidden = hidden;
    config_.streams = streams;
    config_.layers = 1;
    config_.layer_kinds = {model::LayerKind::kRecurrent};
    config_.block_tokens = {0};
    config_.eps = 1e-6f;
    config_.conv_taps = 1;
    config_.ngram_layer = 0;
    config_.ngram_size = 3;
    config_.ngram_heads = 2;
    config_.ngram_taps = taps;
    config_.ngram_row = hidden / 4;
    config_.ngram_cut_token = 0;
    config_.ngram_multipliers = {23, 101, 77};
    config_.ngram_sizes = {11, 13, 17, 19};
    config_.ngram_offsets = {0, 11, 24, 41};
    const uint32_t wide = config_.stream_dim();
    table_ = test_matrix(random_, TensorType::kF16, 60, config_.ngram_row);
    key_ = test_matrix(random_, TensorType::kF32, wide, hidden);
    value_ = test_matrix(random_, TensorType::kF32, hidden, hidden);
    for (std::vector<float>* norm : {&norm_key_, &norm_query_, &norm_conv_})
      *norm = random_floats(random_, wide);
    conv_ = random_floats(random_, std::size_t{wide} * taps);
    weights_.table = table_.host;
    weights_.key = key_.host;
    weights_.value = value_.host;
    weights_.norm_key = {norm_key_.data(), wide};
    weights_.norm_query = {norm_query_.data(), wide};
    weights_.norm_conv = {norm_conv_.data(), wide};
    weights_.conv = {conv_.data(), wide * taps};
    reference_.emplace(config_, quant::Numerics::kReproducible, rows_max, parallel_);
    for (uint32_t i = 0; i < sequences; ++i) states_.emplace_back(config_, 1u << 20);
    device_norm_key_ = on_device(norm_key_);
    device_norm_query_ = on_device(norm_query_);
    device_norm_conv_ = on_device(norm_conv_);
    device_conv_ = on_device(conv_);
    history_stride_ = std::size_t{config_.ngram_history()} * wide + 7;
    history_ = device_zeros<float>(sequences * history_stride_);
  }

  // The states behind the rows `captured` of the window are captured.
  void expect_window(const std::vector<uint32_t>& row_counts, const std::vector<uint32_t>& captured = {}) {
    std::vector<model::SequenceState*> sequences;
    for (model::SequenceState& state : states_) sequences.push_back(&state);
    TestWindow window = test_window(random_, sequences, row_counts, 50);
    const CapturedStates captures(captured, window);
    const uint32_t rows = window.host.rows(), hidden = config_.hidden, wide = config_.stream_dim();
    SCOPED_TRACE(testing::Message() << rows << " rows of " << config_.streams << " x " << hidden);
    std::vector<float> streams = random_floats(random_, std::size_t{rows} * wide, 2.0f);
    const auto device_streams = on_device(streams);
    reference_->run(weights_, window.host, streams.data());

    std::vector<float> embedded(std::size_t{rows} * hidden);
    for (uint32_t row = 0; row < rows; ++row) {
      float* to = embedded.data() + std::size_t{row} * hidden;
      for (const uint64_t at : reference_->table_rows(row)) {
        quant::dequantize_row(table_.host.type, table_.host.row(static_cast<uint32_t>(at)), to,
                              config_.ngram_row);
        to += config_.ngram_row;
      }
    }
    const auto project = [&](const TestMatrix& matrix) {
      std::vector<float> out(std::size_t{rows} * matrix.host.rows);
      const quant::Activations x(embedded.data(), rows, hidden, hidden);
      quant::multiply(matrix.host, x, 0, matrix.host.rows, out.data(), matrix.host.rows,
                      quant::Numerics::kExact);
      return on_device(out);
    };
    const auto keys = project(key_), values = project(value_);
    const auto gated = device_zeros<float>(std::size_t{rows} * wide);
    const auto conv_input = device_zeros<float>(std::size_t{rows} * wide);
    ngram_add({.window = window.view,
               .norm_key = device_norm_key_.data(),
               .norm_query = device_norm_query_.data(),
               .norm_conv = device_norm_conv_.data(),
               .conv = device_conv_.data(),
               .streams_count = config_.streams,
               .hidden = hidden,
               .taps = config_.ngram_taps,
               .dilation = config_.ngram_size,
               .eps = config_.eps,
               .keys = keys.data(),
               .values = values.data(),
               .gated = gated.data(),
               .conv_input = conv_input.data(),
               .streams = device_streams.data(),
               .history = history_.data(),
               .history_stride = history_stride_},
              nullptr, captures.all());
    captures.expect_same();
    expect_same_bits(values_of(gated), reference_->added(), std::size_t{rows} * wide, "added");
    expect_same_bits(values_of(device_streams), streams, "streams");
    const std::vector<float> histories = values_of(history_);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const auto first = histories.begin() + (states_.size() - 1 - i) * history_stride_;
      expect_same_bits({first, first + history_stride_}, states_[i].ngram_conv, "history");
    }
  }

 private:
  Generator random_;
  model::ModelConfig config_;
  model::Parallel parallel_{1};
  TestMatrix table_, key_, value_;
  std::vector<float> norm_key_, norm_query_, norm_conv_, conv_;
  model::NgramWeights weights_;
  std::optional<model::NgramEmbedding> reference_;
  std::vector<model::SequenceState> states_;
  DeviceBuffer<float> device_norm_key_, device_norm_query_, device_norm_conv_, device_conv_, history_;
  std::size_t history_stride_ = 0;
};

TEST(Ngram, TokenByToken) {
  Layer layer(4, 64, 4, 1, 1);
  for (int i = 0; i < 12; ++i) layer.expect_window({1});
}

TEST(Ngram, AFewRowsOfSeveralSequences) {
  Layer layer(4, 32, 4, 3, 32);
  layer.expect_window({1, 1, 1});
  layer.expect_window({3, 0, 8});
  layer.expect_window({0, 1, 0});
  layer.expect_window({5, 1, 2});
}

TEST(Ngram, LongSegments) {
  Layer layer(4, 32, 4, 3, 120);
  layer.expect_window({9, 0, 0});
  layer.expect_window({2, 60, 0});
  layer.expect_window({1, 1, 1});
  layer.expect_window({1, 40, 1});
}

// In short and long windows, of several sequences, several of one, behind its first and its last row.
TEST(Ngram, CapturesStatesWithinAWindow) {
  Layer layer(4, 32, 4, 3, 60);
  layer.expect_window({1, 1, 2}, {2});
  layer.expect_window({3, 0, 6}, {0, 3, 4, 7});
  layer.expect_window({12, 40, 1}, {4, 11, 12, 13, 30});
  layer.expect_window({1, 1, 1});
}

TEST(Ngram, OtherShapes) {
  for (const uint32_t taps : {1u, 2u, 5u}) {
    Layer layer(3, 100, taps, 2, 64);
    layer.expect_window({1, 2});
    layer.expect_window({20, 3});
    layer.expect_window({1, 1});
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
