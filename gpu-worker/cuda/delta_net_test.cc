// The delta-net between its projections against model::DeltaNet, to the bit: outputs and states, over several
// windows of several sequences. The projections are those of the host, so that only what is tested differs.

#include "gpu-worker/cuda/delta_net.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/delta_net.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

struct Shape {
  uint32_t key_heads = 2, value_heads = 6, dim = 32, taps = 4;
};

class Layer {
 public:
  Layer(const Shape& shape, uint32_t sequences, uint32_t rows_max)
      : shape_(shape), random_(shape.dim * 7 + shape.taps) {
    config_.hidden = 64;
    config_.layers = 1;
    config_.layer_kinds = {model::LayerKind::kRecurrent};
    config_.block_tokens = {0};
    config_.key_heads = shape.key_heads;
    config_.value_heads = shape.value_heads;
    config_.state_dim = shape.dim;
    config_.conv_taps = shape.taps;
    config_.eps = 1e-6f;
    const uint32_t channels = config_.qkv_dim(), values = config_.value_dim();
    // Float weights: the products of both sides are then those of multiply(), and rows of heads_ reach the
    // output unchanged through the unit matrix.
    qkv_ = test_matrix(random_, TensorType::kF32, channels, config_.hidden);
    gate_ = test_matrix(random_, TensorType::kF32, values, config_.hidden);
    alpha_ = test_matrix(random_, TensorType::kF32, shape.value_heads, config_.hidden);
    beta_ = test_matrix(random_, TensorType::kF32, shape.value_heads, config_.hidden);
    conv_ = random_floats(random_, std::size_t{channels} * shape.taps);
    a_ = random_floats(random_, shape.value_heads);
    for (float& a : a_) a = -2.0f * std::fabs(a);
    dt_bias_ = random_floats(random_, shape.value_heads);
    norm_ = random_floats(random_, shape.dim);
    unit_.resize(std::size_t{values} * values);
    for (uint32_t i = 0; i < values; ++i) unit_[std::size_t{i} * values + i] = 1.0f;
    weights_.qkv = qkv_.host;
    weights_.gate = gate_.host;
    weights_.alpha = alpha_.host;
    weights_.beta = beta_.host;
    weights_.conv = {conv_.data(), channels * shape.taps};
    weights_.a = {a_.data(), shape.value_heads};
    weights_.dt_bias = {dt_bias_.data(), shape.value_heads};
    weights_.norm = {norm_.data(), shape.dim};
    weights_.out = {.type = TensorType::kF32,
                    .rows = values,
                    .cols = values,
                    .data = reinterpret_cast<const std::byte*>(unit_.data()),
                    .row_bytes = values * sizeof(float)};
    config_.hidden = values;  // of the unit matrix's result
    reference_.emplace(config_, quant::Numerics::kReproducible, rows_max, parallel_);
    for (uint32_t i = 0; i < sequences; ++i) states_.emplace_back(config_, 1u << 20);

    state_stride_ = std::size_t{shape.value_heads} * shape.dim * shape.dim + 8;
    history_stride_ = std::size_t{channels} * (shape.taps - 1) + 3;
    device_conv_ = on_device(conv_);
    device_a_ = on_device(a_);
    device_dt_bias_ = on_device(dt_bias_);
    device_norm_ = on_device(norm_);
    state_ = device_zeros<float>(sequences * state_stride_);
    history_ = device_zeros<float>(sequences * history_stride_);
    arrivals_ = device_zeros<uint32_t>(sequences * shape.key_heads);
  }

  // Row counts by sequence; 0: not in this window.
  void expect_window(const std::vector<uint32_t>& row_counts) {
    std::vector<model::SequenceState*> sequences;
    for (model::SequenceState& state : states_) sequences.push_back(&state);
    const TestWindow window = test_window(random_, sequences, row_counts, 10);
    const uint32_t rows = window.host.rows(), channels = config_.qkv_dim(), values = config_.value_dim();
    const uint32_t hidden = qkv_.host.cols;
    SCOPED_TRACE(testing::Message() << rows << " rows, heads of " << shape_.dim);
    const std::vector<float> input = random_floats(random_, std::size_t{rows} * hidden);
    const auto project = [&](const TestMatrix& matrix) {
      std::vector<float> out(std::size_t{rows} * matrix.host.rows);
      const quant::Activations x(input.data(), rows, hidden, hidden);
      quant::multiply(matrix.host, x, 0, matrix.host.rows, out.data(), matrix.host.rows,
                      quant::Numerics::kExact);
      return on_device(out);
    };
    const auto qkv = project(qkv_), gate = project(gate_), alpha = project(alpha_), beta = project(beta_);
    const auto heads = device_zeros<float>(std::size_t{rows} * values);
    const auto mixed = device_zeros<float>(std::size_t{rows} * channels);
    const bool q8 = values % 32 == 0;
    const uint64_t q8_stride = q8_row_stride(values);
    const auto heads_q8 = device_zeros<std::byte>(rows * q8_stride);
    DeltaNetArgs args = {.window = window.view,
                         .key_heads = shape_.key_heads,
                         .value_heads = shape_.value_heads,
                         .dim = shape_.dim,
                         .taps = shape_.taps,
                         .eps = config_.eps,
                         .conv = device_conv_.data(),
                         .a = device_a_.data(),
                         .dt_bias = device_dt_bias_.data(),
                         .norm = device_norm_.data(),
                         .qkv = {qkv.data(), channels},
                         .gate = {gate.data(), values},
                         .alpha = {alpha.data(), shape_.value_heads},
                         .beta = {beta.data(), shape_.value_heads},
                         .heads = heads.data(),
                         .state = state_.data(),
                         .state_stride = state_stride_,
                         .history = history_.data(),
                         .history_stride = history_stride_,
                         .mixed = mixed.data(),
                         .arrivals = arrivals_.data()};
    if (q8) args.heads_q8 = {.data = heads_q8.data(), .stride = q8_stride, .cols = values};
    delta_net(args, nullptr);

    std::vector<float> expected(std::size_t{rows} * values);
    quant::Activations activations(input.data(), rows, hidden, hidden);
    reference_->run(weights_, 0, window.host, activations, expected.data());
    // The unit matrix turns -0 into +0 (sums begin with +0).
    std::vector<float> actual = values_of(heads);
    for (float& v : actual) v += 0.0f;
    expect_same_bits(actual, expected, "heads");
    if (q8) expect_q8_of(values_of(heads_q8), q8_stride, values_of(heads), values);
    expect_states();
    EXPECT_THAT(values_of(arrivals_), testing::Each(0u));
  }

  void expect_states() {
    const std::vector<float> states = values_of(state_), histories = values_of(history_);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::size_t at = states_.size() - 1 - i;  // as test_window numbers them
      const model::DeltaNetState& expected = states_[i].delta[0];
      expect_same_bits({states.begin() + at * state_stride_, states.begin() + (at + 1) * state_stride_},
                       expected.s, "state");
      expect_same_bits(
          {histories.begin() + at * history_stride_, histories.begin() + (at + 1) * history_stride_},
          expected.conv, "history");
    }
  }

 private:
  Shape shape_;
  Generator random_;
  model::ModelConfig config_;
  model::Parallel parallel_{1};
  TestMatrix qkv_, gate_, alpha_, beta_;
  std::vector<float> conv_, a_, dt_bias_, norm_, unit_;
  model::DeltaNetWeights weights_;
  std::optional<model::DeltaNet> reference_;
  std::vector<model::SequenceState> states_;
  std::size_t state_stride_ = 0, history_stride_ = 0;
  DeviceBuffer<float> device_conv_, device_a_, device_dt_bias_, device_norm_, state_, history_;
  DeviceBuffer<uint32_t> arrivals_;
};

TEST(DeltaNet, TokenByToken) {
  Layer layer({}, 1, 1);
  for (int i = 0; i < 7; ++i) layer.expect_window({1});
}

TEST(DeltaNet, AFewRowsOfSeveralSequences) {
  Layer layer({}, 3, 32);
  layer.expect_window({1, 1, 1});
  layer.expect_window({2, 0, 5});
  layer.expect_window({0, 1, 0});
  layer.expect_window({8, 3, 8});
  layer.expect_window({1, 2, 1});
}

TEST(DeltaNet, LongSegments) {
  Layer layer({}, 3, 200);
  layer.expect_window({9, 0, 0});
  layer.expect_window({0, 40, 3});
  layer.expect_window({1, 1, 1});
  layer.expect_window({1, 70, 1});
  layer.expect_window({16, 17, 24});
}

// As a whole the window counts as short, and its first sequence goes through it in several parts.
TEST(DeltaNet, ALongSegmentAmongShortOnes) {
  for (const uint32_t dim : {32u, 128u}) {
    Layer layer({.dim = dim}, 3, 24);
    layer.expect_window({22, 1, 1});
    layer.expect_window({1, 16, 2});
    layer.expect_window({1, 1, 1});
  }
}

TEST(DeltaNet, HeadSizesWithColumnsInRegisters) {
  for (const uint32_t dim : {64u, 128u}) {
    Layer layer({.value_heads = 4, .dim = dim}, 2, 64);
    layer.expect_window({1, 1});
    layer.expect_window({3, 2});
    layer.expect_window({20, 2});
    layer.expect_window({1, 30});
    layer.expect_window({1, 1});
  }
}

// The state stays in memory; heads that share no block of the 8-bit form, or parts of one.
TEST(DeltaNet, OtherHeadSizes) {
  for (const uint32_t dim : {1u, 7u, 8u, 16u, 48u, 96u, 160u}) {
    Layer layer({.value_heads = 4, .dim = dim}, 2, 40);
    layer.expect_window({1, 2});
    layer.expect_window({12, 20});
    layer.expect_window({1, 1});
  }
}

TEST(DeltaNet, HeadsAndTaps) {
  for (const Shape& shape :
       {Shape{.key_heads = 1, .value_heads = 1}, Shape{.key_heads = 3, .value_heads = 3, .taps = 1},
        Shape{.key_heads = 1, .value_heads = 5, .taps = 2}, Shape{.taps = 9}}) {
    Layer layer(shape, 2, 40);
    layer.expect_window({1, 1});
    layer.expect_window({2, 1});
    layer.expect_window({30, 3});
    layer.expect_window({1, 1});
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
