#include "services/model/stream_mixer.h"

#include "services/model/row_kernels.h"
#include "services/model/window.h"

namespace strata::model {
namespace {

constexpr uint32_t kColumnsPerPiece = 2048;

}  // namespace

StreamMixer::StreamMixer(const ModelConfig& config, uint32_t rows_max, Parallel& parallel)
    : config_(config),
      parallel_(parallel),
      normed_(std::size_t{rows_max} * config.stream_dim()),
      low_(std::size_t{rows_max} * config.mixer_rank),
      mask_(std::size_t{rows_max} * config.stream_dim()),
      inject_(std::size_t{rows_max} * config.streams) {}

uint64_t StreamMixer::row_bytes(const ModelConfig& config) {
  return (2 * uint64_t{config.stream_dim()} + config.mixer_rank + config.streams) * sizeof(float);
}

void StreamMixer::read(const StreamMixerWeights& weights, const float* streams, uint32_t rows, float* input) {
  const uint32_t wide = config_.stream_dim(), hidden = config_.hidden, rank = config_.mixer_rank,
                 count = config_.streams;
  parallel_.run(rows * count, 1, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const std::size_t at = std::size_t{i} * hidden;
      rms_norm(streams + at, weights.norm.data + std::size_t{i % count} * hidden, config_.eps, hidden,
               normed_.data() + at);
    }
  });

  quant::Activations normed(normed_.data(), rows, wide, wide);
  const Product down{&weights.down, &normed, low_.data(), rank, quant::Numerics::kExact};
  if (weights.inject.rows > 0) {
    multiply_all(parallel_,
                 {down, {&weights.inject, &normed, inject_.data(), count, quant::Numerics::kExact}});
  } else {
    multiply_all(parallel_, {down});
  }
  const auto streams_f32 = static_cast<float>(count);
  for (std::size_t i = 0; i < std::size_t{rows} * rank; ++i) low_[i] = quant::silu_f32(low_[i] / streams_f32);
  if (weights.inject.rows > 0) {
    for (std::size_t i = 0; i < std::size_t{rows} * count; ++i)
      inject_[i] = 2.0f * quant::sigmoid_f32(inject_[i] / streams_f32);
  }

  quant::Activations low(low_.data(), rows, rank, rank);
  multiply_all(parallel_, {{&weights.up, &low, mask_.data(), wide, quant::Numerics::kExact}});
  for_each_row_piece(parallel_, rows, hidden, kColumnsPerPiece,
                     [&](uint32_t row, uint32_t begin, uint32_t end) {
                       const std::size_t at = std::size_t{row} * wide;
                       row_kernels().mix_streams(mask_.data() + at, normed_.data() + at, count, hidden, begin,
                                                 end, input + std::size_t{row} * hidden);
                     });
}

void StreamMixer::add(const float* output, uint32_t rows, float* streams) {
  const uint32_t hidden = config_.hidden;
  parallel_.run(rows * config_.streams, 1 + kColumnsPerPiece / hidden, [&](uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const float* row = output + std::size_t{i / config_.streams} * hidden;
      quant::add_scaled_f32(inject_[i], row, streams + std::size_t{i} * hidden, hidden);
    }
  });
}

}  // namespace strata::model
