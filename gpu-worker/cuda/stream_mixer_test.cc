// Reads and writes of the streams against model::StreamMixer, to the bit.

#include "gpu-worker/cuda/stream_mixer.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "services/model/stream_mixer.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

struct Shape {
  uint32_t streams = 4, hidden = 64, rank = 32;
  TensorType down = TensorType::kQ8_0, up = TensorType::kQ8_0, inject = TensorType::kF32;
  bool has_inject = true, want_q8 = true;
  uint32_t rows = 1;
};

// Two reads with a block's output between them, as a layer has it: the second one adds what is pending.
void expect_reads(const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape.streams << " streams of " << shape.hidden << ", rank "
                                  << shape.rank << ", " << gguf::tensor_type_info(shape.up).name << ", "
                                  << shape.rows << " rows");
  Generator random(shape.hidden + shape.rows);
  const uint32_t wide = shape.streams * shape.hidden, rows = shape.rows;
  const TestMatrix down = test_matrix(random, shape.down, shape.rank, wide, 0.25f);
  const TestMatrix up = test_matrix(random, shape.up, wide, shape.rank, 0.5f);
  TestMatrix inject;
  if (shape.has_inject) inject = test_matrix(random, shape.inject, shape.streams, wide);
  const std::vector<float> norm = random_floats(random, wide);
  std::vector<float> streams = random_floats(random, std::size_t{rows} * wide, 3.0f);
  const std::vector<float> output = random_floats(random, std::size_t{rows} * shape.hidden);

  model::ModelConfig config;
  config.hidden = shape.hidden;
  config.streams = shape.streams;
  config.mixer_rank = shape.rank;
  config.eps = 1e-6f;
  const model::StreamMixerWeights weights = {
      .norm = {norm.data(), wide}, .down = down.host, .up = up.host, .inject = inject.host};
  model::Parallel parallel(1);
  model::StreamMixer reference(config, rows, parallel);

  const auto device_norm = on_device(norm);
  const auto device_streams = on_device(streams), device_output = on_device(output);
  const auto normed = device_zeros<float>(std::size_t{rows} * wide),
             mask = device_zeros<float>(std::size_t{rows} * wide);
  const auto low = device_zeros<float>(std::size_t{rows} * shape.rank);
  const auto first_inject = device_zeros<float>(std::size_t{rows} * shape.streams);
  const auto second_inject = device_zeros<float>(std::size_t{rows} * shape.streams);
  const auto input = device_zeros<float>(std::size_t{rows} * shape.hidden);
  const uint64_t q8_stride = q8_row_stride(shape.hidden);
  const auto input_q8 = device_zeros<std::byte>(rows * q8_stride);
  const auto products =
      device_zeros<float>(scratch_floats(std::max(wide, 256u), std::max(wide, shape.rank), rows));
  StreamReadArgs args = {.mixer = {.norm = device_norm.data(),
                                   .down = down.device,
                                   .up = up.device,
                                   .inject = inject.device,
                                   .streams = shape.streams,
                                   .hidden = shape.hidden,
                                   .eps = config.eps},
                         .streams = device_streams.data(),
                         .scratch = {.normed = normed.data(),
                                     .mask = mask.data(),
                                     .low = low.data(),
                                     .products = {products.data(), products.size()}},
                         .inject = first_inject.data(),
                         .input = input.data(),
                         .rows = rows};
  if (shape.want_q8) args.input_q8 = {.data = input_q8.data(), .stride = q8_stride, .cols = shape.hidden};

  std::vector<float> expected(std::size_t{rows} * shape.hidden);
  const auto expect_input = [&] {
    expect_same_bits(values_of(input), expected, "input");
    if (shape.want_q8) expect_q8_of(values_of(input_q8), q8_stride, expected, shape.hidden);
    expect_same_bits(values_of(device_streams), streams, "streams");
  };
  read_streams(args, nullptr);
  reference.read(weights, streams.data(), rows, expected.data());
  expect_input();
  if (!shape.has_inject) return;

  args.pending = {.output = device_output.data(), .inject = first_inject.data()};
  args.inject = second_inject.data();
  read_streams(args, nullptr);
  reference.add(output.data(), rows, streams.data());
  reference.read(weights, streams.data(), rows, expected.data());
  expect_input();

  add_to_streams({.pending = {.output = device_output.data(), .inject = second_inject.data()},
                  .streams = device_streams.data(),
                  .streams_count = shape.streams,
                  .hidden = shape.hidden,
                  .rows = rows},
                 nullptr);
  reference.add(output.data(), rows, streams.data());
  expect_same_bits(values_of(device_streams), streams, "streams after the add");
}

TEST(StreamMixer, RowsOfAWindow) {
  for (const uint32_t rows : {1u, 2u, 3u, 5u, 8u, 9u, 70u}) expect_reads({.rows = rows});
}

TEST(StreamMixer, TheRealShape) { expect_reads({.hidden = 2560, .rank = 320, .inject = TensorType::kQ8_0}); }

TEST(StreamMixer, StreamsWiderThanABlocksThreads) { expect_reads({.hidden = 2592, .rank = 64, .rows = 2}); }

TEST(StreamMixer, TypesThatAreReadDirectlyAndOthers) {
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ4_0, TensorType::kQ6_K}) {
    const bool wide_blocks = type == TensorType::kQ6_K;
    for (const uint32_t rows : {1u, 3u}) {
      expect_reads(
          {.rank = wide_blocks ? 256u : 32u, .down = type, .up = type, .inject = type, .rows = rows});
    }
  }
}

// Hidden sizes and ranks that fill no block, and one whose columns do not fit into shared memory.
TEST(StreamMixer, OtherShapes) {
  expect_reads({.streams = 1, .hidden = 96});
  expect_reads({.streams = 3, .hidden = 32, .rank = 64, .rows = 4});
  expect_reads({.streams = 2,
                .hidden = 80,
                .rank = 7,
                .down = TensorType::kF32,
                .up = TensorType::kF16,
                .want_q8 = false,
                .rows = 2});
  expect_reads({.streams = 2,
                .hidden = 1700,
                .rank = 33,
                .down = TensorType::kF16,
                .up = TensorType::kF32,
                .want_q8 = false});
  expect_reads({.streams = 6,
                .hidden = 33,
                .rank = 64,
                .down = TensorType::kF16,
                .inject = TensorType::kF16,
                .want_q8 = false});
  expect_reads({.hidden = 64, .rank = 512, .up = TensorType::kF32});
  expect_reads({.hidden = 64,
                .rank = 70,
                .down = TensorType::kF32,
                .up = TensorType::kBF16,
                .inject = TensorType::kF16,
                .rows = 2});
}

TEST(StreamMixer, TheFinalReadHasNoInject) {
  for (const uint32_t rows : {1u, 3u}) expect_reads({.has_inject = false, .rows = rows});
}

TEST(StreamMixer, GathersChosenRows) {
  Generator random(1);
  const std::vector<float> streams = random_floats(random, 5 * 700);
  const std::vector<uint32_t> chosen = {4, 0, 3};
  const auto from = on_device(streams);
  const auto list = on_device(chosen);
  const auto to = device_zeros<float>(3 * 700);
  gather_streams({.from = from.data(), .chosen = list.data(), .to = to.data(), .stream_dim = 700, .count = 3},
                 nullptr);
  const std::vector<float> gathered = values_of(to);
  for (std::size_t i = 0; i < 3; ++i)
    expect_same_bits({gathered.begin() + i * 700, gathered.begin() + (i + 1) * 700},
                     &streams[chosen[i] * 700], 700, "gathered");
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
