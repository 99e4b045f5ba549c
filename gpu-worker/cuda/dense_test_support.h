#pragma once
// For tests of the dense operations: arrays on the device, matrices on both sides, windows of several
// sequences.

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu-worker/cuda/device_buffer.h"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/state_capture.h"
#include "services/model/window.h"
#include "services/quant/quant.h"
#include "services/quant/test_inputs.h"

namespace strata::gpu_worker::cuda::tests {

using quant::tests::Generator;

template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& values) {
  auto buffer = DeviceBuffer<T>::of(values);
  CHECK(buffer.has_value(), "{}", buffer.error().message());
  return std::move(*buffer);
}
template <class T>
DeviceBuffer<T> device_zeros(std::size_t count) {
  return on_device(std::vector<T>(count));
}
template <class T>
std::vector<T> values_of(const DeviceBuffer<T>& buffer) {
  auto values = buffer.download();
  CHECK(values.has_value(), "{}", values.error().message());
  return std::move(*values);
}

inline std::vector<float> random_floats(Generator& random, std::size_t count, float size = 1.0f) {
  std::vector<float> values(count);
  for (float& v : values) v = random.uniform() * size;
  return values;
}

// A weight matrix of any type, once for the host and once for the device.
struct TestMatrix {
  std::vector<std::byte> bytes;
  DeviceBuffer<std::byte> stored;
  quant::Matrix host;
  DeviceMatrix device;
};
inline TestMatrix test_matrix(Generator& random, gguf::TensorType type, uint32_t rows, uint32_t cols,
                              float scale = 1.0f) {
  const auto& info = gguf::tensor_type_info(type);
  TestMatrix m;
  m.bytes = quant::tests::weights(random, type, rows, cols);
  std::vector<std::byte> padded = m.bytes;
  padded.resize((padded.size() + 15) / 16 * 16);  // as the device keeps its matrices
  m.stored = on_device(padded);
  const uint64_t row_bytes = uint64_t{cols} / info.block_values * info.block_bytes;
  m.host = {.type = type,
            .rows = rows,
            .cols = cols,
            .data = m.bytes.data(),
            .row_bytes = row_bytes,
            .scale = scale};
  m.device = {.type = type,
              .rows = rows,
              .cols = cols,
              .data = m.stored.data(),
              .row_bytes = row_bytes,
              .scale = scale};
  return m;
}

// Equal to the bit; a NaN is a NaN.
inline void expect_same_bits(const std::vector<float>& actual, const float* expected, std::size_t count,
                             const char* what) {
  ASSERT_GE(actual.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << " " << i << ": " << actual[i] << ", not " << expected[i];
  }
}
inline void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected,
                             const char* what) {
  expect_same_bits(actual, expected.data(), expected.size(), what);
}
// The 8-bit form of rows of floats.
inline void expect_q8_of(const std::vector<std::byte>& actual, uint64_t stride,
                         const std::vector<float>& rows, uint32_t cols) {
  std::vector<std::byte> expected(quant::q8_row_bytes(cols));
  for (std::size_t row = 0; row < rows.size() / cols; ++row) {
    quant::quantize_q8(std::span(rows).subspan(row * cols, cols), expected.data());
    const std::vector<std::byte> stored(actual.begin() + row * stride,
                                        actual.begin() + row * stride + expected.size());
    ASSERT_EQ(stored, expected) << "8-bit row " << row;
  }
}

// Consecutive rows of some sequences; the sequences' states are numbered from the back, so that nothing
// works because a segment and its sequence have the same number.
struct TestWindow {
  std::vector<RowInfo> row_infos;
  std::vector<SegmentInfo> segment_infos;
  DeviceBuffer<RowInfo> rows;
  DeviceBuffer<SegmentInfo> segments;
  WindowView view;
  model::Window host;
};
// Rows of the same sequence follow those of earlier windows: the sequences' positions are moved on. All rows
// are of prompts, or all were generated.
inline TestWindow test_window(Generator& random, std::vector<model::SequenceState*> sequences,
                              const std::vector<uint32_t>& row_counts, uint32_t vocabulary,
                              bool prompts = true) {
  TestWindow window;
  const auto count = static_cast<uint32_t>(sequences.size());
  for (uint32_t i = 0; i < count; ++i) {
    if (row_counts[i] == 0) continue;
    const uint32_t position = sequences[i]->position_, row_begin = window.host.rows();
    const auto segment = static_cast<uint32_t>(window.segment_infos.size());
    window.segment_infos.push_back({.sequence = count - 1 - i,
                                    .row_begin = row_begin,
                                    .row_count = row_counts[i],
                                    .position = position,
                                    .prompt_rows = prompts ? row_counts[i] : 0});
    window.host.segments.push_back(
        {.sequence = sequences[i], .row_begin = row_begin, .row_count = row_counts[i], .position = position});
    for (uint32_t r = 0; r < row_counts[i]; ++r) {
      const auto token = static_cast<int32_t>(random.below(vocabulary));
      window.row_infos.push_back(
          {.token = token, .segment = segment, .position = position + r, .sequence = count - 1 - i});
      window.host.places.push_back({.segment = segment, .position = position + r});
      window.host.tokens.push_back(token);
    }
    sequences[i]->position_ += row_counts[i];
  }
  window.rows = on_device(window.row_infos);
  window.segments = on_device(window.segment_infos);
  window.view = {.row_count = window.host.rows(),
                 .segment_count = static_cast<uint32_t>(window.segment_infos.size()),
                 .rows = window.rows.data(),
                 .segments = window.segments.data()};
  return window;
}

// States that are captured behind rows of a window, on both sides. Of the only layer.
class CapturedStates {
 public:
  // Tells the host's side of the window. `rows`: rising.
  CapturedStates(const std::vector<uint32_t>& rows, TestWindow& window) {
    states_.reserve(rows.size());  // addresses stay
    for (const uint32_t row : rows) {
      const RowInfo& info = window.row_infos[row];
      State& state = states_.emplace_back(*window.host.segments[info.segment].sequence);
      window.host.captures.push_back({.row = row, .to = &state.to_host});
      captures_.push_back({.row = row, .sequence = info.sequence, .to = &state.to_device});
    }
  }
  std::span<const StateCapture> all() const { return captures_; }
  LayerCaptures of_layer() const { return {.all = captures_, .layer = 0}; }
  // On the device.
  std::vector<float> state(std::size_t number) const { return values_of(states_[number].s); }
  // `tail_floats`: so many of what an attention layer keeps of a block in the making.
  void expect_same(std::size_t tail_floats = 0) const {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "behind row " << captures_[i].row);
      const State& state = states_[i];
      expect_same_bits(values_of(state.s), state.host.delta[0].s, "state");
      expect_same_bits(values_of(state.conv), state.host.delta[0].conv, "history");
      expect_same_bits(values_of(state.raw), state.host.attention[0].raw.data(), tail_floats, "raw key");
      expect_same_bits(values_of(state.ngram_conv), state.host.ngram_conv, "n-gram history");
    }
  }

 private:
  struct State {
    explicit State(const model::SequenceState& like)
        : host(like),
          s(device_zeros<float>(host.delta[0].s.size())),
          conv(device_zeros<float>(host.delta[0].conv.size())),
          raw(device_zeros<float>(host.attention[0].raw.size())),
          ngram_conv(device_zeros<float>(host.ngram_conv.size())) {
      to_host.layers = {{.s = host.delta[0].s.data(),
                         .conv = host.delta[0].conv.data(),
                         .raw = host.attention[0].raw.data()}};
      to_host.ngram_conv = host.ngram_conv.data();
      to_host.ngram_context = host.ngram_context.data();
      to_device.layers = {{.s = s.data(), .conv = conv.data(), .raw = raw.data()}};
      to_device.ngram_conv = ngram_conv.data();
    }
    model::SequenceState host;
    DeviceBuffer<float> s, conv, raw, ngram_conv;
    model::FixedState to_host, to_device;
  };
  std::vector<State> states_;
  std::vector<StateCapture> captures_;
};

}  // namespace strata::gpu_worker::cuda::tests
