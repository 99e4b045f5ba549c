#pragma once
// For tests of the delta-net: one layer with the same weights and inputs on the device and on the host.

#include <memory>

#include "gpu-worker/cuda/delta_net.h"
#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/delta_net.h"

namespace strata::gpu_worker::cuda::tests {

using gguf::TensorType;

struct DeltaShape {
  uint32_t key_heads = 2, value_heads = 6, dim = 32, taps = 4;
  float decay = 2.0f;         // a is drawn from [-decay, 0]: what log decays are multiples of
  uint64_t chunk_floats = 0;  // scratch of the chunked form; 0: recurrent
};

// The root of the mean square error, in units of the root of the mean square.
inline double relative_error(const std::vector<float>& actual, const float* expected, std::size_t count) {
  double error = 0.0, size = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double difference = double{actual[i]} - expected[i];
    error += difference * difference;
    size += double{expected[i]} * expected[i];
  }
  return std::sqrt(error / size);
}

// A layer on both sides, and the states of some sequences.
class DeltaLayer {
 public:
  DeltaLayer(const DeltaShape& shape, uint32_t sequences, uint32_t rows_max)
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
    for (float& a : a_) a = -shape.decay * std::fabs(a);
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
    for (uint32_t i = 0; i < sequences; ++i) {
      states_.emplace_back(config_, 1u << 20);
      inputs_.emplace_back(1000 + i);
    }

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

  // Row counts by sequence; 0: not in this window. To the bit. The states behind the rows `captured` of the
  // window are captured.
  void expect_window(const std::vector<uint32_t>& row_counts, const std::vector<uint32_t>& captured = {}) {
    const Outcome outcome = run(row_counts, true, UINT32_MAX, captured);
    SCOPED_TRACE(testing::Message() << outcome.rows() << " rows, heads of " << shape_.dim);
    // The unit matrix turns -0 into +0 (sums begin with +0).
    std::vector<float> actual = outcome.heads;
    for (float& v : actual) v += 0.0f;
    expect_same_bits(actual, outcome.expected, "heads");
    outcome.captured->expect_same();
    expect_states();
  }

  struct Outcome {
    uint32_t values = 0;          // of a row
    std::vector<float> heads;     // (rows, values)
    std::vector<float> expected;  // those of the host
    std::unique_ptr<CapturedStates> captured;
    uint32_t rows() const { return static_cast<uint32_t>(heads.size() / values); }
    double error() const { return relative_error(heads, expected.data(), expected.size()); }
  };
  // A window on both sides. The inputs of a sequence do not depend on how its rows are spread over windows.
  // Row `broken` of the window is not a number.
  Outcome run(const std::vector<uint32_t>& row_counts, bool prompts = true, uint32_t broken = UINT32_MAX,
              const std::vector<uint32_t>& captured = {}) {
    std::vector<model::SequenceState*> sequences;
    for (model::SequenceState& state : states_) sequences.push_back(&state);
    TestWindow window = test_window(random_, sequences, row_counts, 10, prompts);
    auto captures = std::make_unique<CapturedStates>(captured, window);
    const uint32_t rows = window.host.rows(), channels = config_.qkv_dim(), values = config_.value_dim();
    const uint32_t hidden = qkv_.host.cols;
    std::vector<float> input;
    for (std::size_t i = 0; i < row_counts.size(); ++i) {
      const std::vector<float> some = random_floats(inputs_[i], std::size_t{row_counts[i]} * hidden);
      input.insert(input.end(), some.begin(), some.end());
    }
    if (broken < rows) input[std::size_t{broken} * hidden] = NAN;
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
    const auto log_decays = device_zeros<float>(std::size_t{rows} * shape_.value_heads);
    auto scratch = DeviceBuffer<float>::create(std::max<uint64_t>(shape_.chunk_floats, 1));  // full of NaNs
    CHECK(scratch.has_value(), "{}", scratch.error().message());
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
    if (shape_.chunk_floats > 0) {
      args.log_decays = log_decays.data();
      args.chunk_scratch = {.data = scratch->data(), .floats = shape_.chunk_floats};
    }
    delta_net(args, nullptr, captures->of_layer());

    Outcome outcome{.values = values,
                    .heads = {},
                    .expected = std::vector<float>(std::size_t{rows} * values),
                    .captured = std::move(captures)};
    quant::Activations activations(input.data(), rows, hidden, hidden);
    reference_->run(weights_, 0, window.host, activations, outcome.expected.data());
    outcome.heads = values_of(heads);
    if (q8) expect_q8_of(values_of(heads_q8), q8_stride, outcome.heads, values);
    EXPECT_THAT(values_of(arrivals_), testing::Each(0u));
    return outcome;
  }

  // The states on the device, by sequence.
  std::vector<float> state(std::size_t sequence) const {
    const std::vector<float> all = values_of(state_);
    const std::size_t at = states_.size() - 1 - sequence;  // as test_window numbers them
    return {all.begin() + static_cast<std::ptrdiff_t>(at * state_stride_),
            all.begin() + static_cast<std::ptrdiff_t>((at + 1) * state_stride_)};
  }
  double state_error(std::size_t sequence) const {
    const std::vector<float>& expected = states_[sequence].delta[0].s;
    return relative_error(state(sequence), expected.data(), expected.size());
  }
  void expect_states() {
    const std::vector<float> histories = values_of(history_);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const std::size_t at = states_.size() - 1 - i;
      const model::DeltaNetState& expected = states_[i].delta[0];
      expect_same_bits(state(i), expected.s, "state");
      expect_same_bits(
          {histories.begin() + at * history_stride_, histories.begin() + (at + 1) * history_stride_},
          expected.conv, "history");
    }
  }

 private:
  DeltaShape shape_;
  Generator random_;
  std::vector<Generator> inputs_;  // of each sequence
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

}  // namespace strata::gpu_worker::cuda::tests
