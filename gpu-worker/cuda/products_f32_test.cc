// Products with float32 activations against quant::multiply, to the bit: every type, shapes around all the
// steps of the kernels, several matrices in a launch.

#include "gpu-worker/cuda/products_f32.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "gpu-worker/cuda/device_limits.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

struct Case {
  std::vector<TensorType> types;  // of the jobs
  std::vector<uint32_t> rows;     // of the jobs
  uint32_t cols = 0;
  uint32_t tokens = 1;
  float scale = 1.0f;
  uint32_t padding = 0;  // floats between rows of x
  uint64_t scratch_floats = 1u << 21;
};

void expect_products(const Case& c) {
  SCOPED_TRACE(testing::Message() << gguf::tensor_type_info(c.types[0]).name << " " << c.rows[0] << " x "
                                  << c.cols << ", " << c.tokens << " tokens");
  Generator random(c.cols * 31 + c.tokens);
  const uint64_t stride = c.cols + c.padding;
  const std::vector<float> x = quant::tests::activations(random, c.tokens * stride);
  const auto device_x = on_device(x);
  std::vector<TestMatrix> matrices;
  std::vector<DeviceBuffer<float>> outs;
  std::vector<ProductJob> jobs;
  for (std::size_t i = 0; i < c.types.size(); ++i) {
    matrices.push_back(test_matrix(random, c.types[i], c.rows[i], c.cols, c.scale));
    outs.push_back(device_zeros<float>(std::size_t{c.tokens} * (c.rows[i] + 3)));
    jobs.push_back({.matrix = matrices[i].device, .out = outs[i].data(), .out_stride = c.rows[i] + 3});
  }
  const auto scratch = device_zeros<float>(c.scratch_floats);
  multiply_f32(jobs, {device_x.data(), stride}, c.tokens, nullptr, {scratch.data(), scratch.size()});

  for (std::size_t i = 0; i < c.types.size(); ++i) {
    const uint32_t rows = c.rows[i];
    const quant::Activations activations(x.data(), c.tokens, c.cols, stride);
    std::vector<float> expected(std::size_t{c.tokens} * (rows + 3));
    quant::multiply(matrices[i].host, activations, 0, rows, expected.data(), rows + 3,
                    quant::Numerics::kExact);
    expect_same_bits(values_of(outs[i]), expected, "product");
  }
}

TEST(ProductsF32, EveryTypeOneRow) {
  for (const TensorType type : quant::tests::all_types())
    expect_products({.types = {type}, .rows = {5}, .cols = 1280});
}

TEST(ProductsF32, EveryTypeManyRows) {
  for (const TensorType type : quant::tests::all_types())
    expect_products({.types = {type}, .rows = {19}, .cols = 512, .tokens = 70});
}

TEST(ProductsF32, EveryCountOfRowsOfActivations) {
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kF32, TensorType::kQ4_K}) {
    for (const uint32_t tokens : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 17u, 63u, 64u, 65u, 96u, 97u})
      expect_products({.types = {type}, .rows = {33}, .cols = 768, .tokens = tokens});
  }
}

TEST(ProductsF32, ColumnsThatFillNoTurn) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    for (const uint32_t cols : {1u, 2u, 3u, 31u, 33u, 63u, 65u, 66u, 127u, 129u, 191u, 1027u}) {
      expect_products({.types = {type}, .rows = {9}, .cols = cols, .tokens = 3});
      expect_products({.types = {type}, .rows = {17}, .cols = cols, .tokens = 65});
    }
  }
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kIQ4_NL}) {
    for (const uint32_t cols : {32u, 64u, 96u, 160u, 1056u}) {
      expect_products({.types = {type}, .rows = {9}, .cols = cols, .tokens = 3});
      expect_products({.types = {type}, .rows = {17}, .cols = cols, .tokens = 65});
    }
  }
}

// More than fits into shared memory at once, so that places are filled again; and the real width.
TEST(ProductsF32, LongRows) {
  expect_products({.types = {TensorType::kQ8_0}, .rows = {3}, .cols = 10240});
  expect_products({.types = {TensorType::kQ8_0}, .rows = {3}, .cols = 10240, .tokens = 8});
  expect_products({.types = {TensorType::kF32}, .rows = {2}, .cols = 20011, .tokens = 2});
  expect_products({.types = {TensorType::kQ6_K}, .rows = {2}, .cols = 20480});
}

TEST(ProductsF32, MoreWeightRowsThanBlocks) {
  expect_products({.types = {TensorType::kQ8_0}, .rows = {1301}, .cols = 64});
  expect_products({.types = {TensorType::kQ5_1}, .rows = {1301}, .cols = 64, .tokens = 2});
}

// Few tiles share the classes of lanes among 8, 4 or 2 blocks, many do not, whatever the GPU's size; and
// several chunks of columns of each class.
TEST(ProductsF32, AnyCountOfTiles) {
  const std::pair<uint32_t, uint32_t> counts[] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {5, 8}, {12, 11}};
  for (const auto& [weight_tiles, token_tiles] : counts) {
    expect_products({.types = {TensorType::kF32},
                     .rows = {weight_tiles * 64 - 5},
                     .cols = 36,
                     .tokens = token_tiles * 64 - 40});
  }
  expect_products({.types = {TensorType::kQ8_0}, .rows = {640}, .cols = 672, .tokens = 30});
  expect_products(
      {.types = {TensorType::kQ8_0, TensorType::kF32}, .rows = {70, 4}, .cols = 2560, .tokens = 68});
}

// So many that a block has several tiles of activations after each other, the last one fewer and not full.
TEST(ProductsF32, ManyTiles) {
  const uint32_t token_tiles = 6 * multiprocessors() + 1;
  expect_products(
      {.types = {TensorType::kF32}, .rows = {8 * 64 - 5}, .cols = 36, .tokens = token_tiles * 64 - 40});
}

// The operands fit into the scratch memory in pieces only, down to one tile of each, or not at all.
TEST(ProductsF32, LittleScratchMemory) {
  constexpr uint64_t kTile = 64 * 640;  // floats of 64 rows of up to 640 columns
  for (const uint64_t tiles : {0u, 2u, 3u, 4u, 6u, 9u}) {
    expect_products({.types = {TensorType::kQ8_0, TensorType::kF16},
                     .rows = {130, 70},
                     .cols = 608,
                     .tokens = 210,
                     .scratch_floats = tiles * kTile * 4 / 3});
  }
}

TEST(ProductsF32, SeveralMatricesOfSeveralTypes) {
  for (const uint32_t tokens : {1u, 6u, 80u}) {
    expect_products({.types = {TensorType::kQ8_0, TensorType::kF32, TensorType::kQ3_K, TensorType::kF16},
                     .rows = {37, 4, 1, 16},
                     .cols = 256,
                     .tokens = tokens});
  }
}

TEST(ProductsF32, ScaleAndRowsApart) {
  expect_products({.types = {TensorType::kQ8_0}, .rows = {6}, .cols = 96, .tokens = 5, .scale = 0.37f});
  for (const uint32_t padding : {1u, 4u})
    expect_products({.types = {TensorType::kF16}, .rows = {6}, .cols = 96, .tokens = 70, .padding = padding});
}

TEST(ProductsF32, FinishesOfTheStreamMixer) {
  constexpr uint32_t kCols = 128, kRows = 6;
  for (const uint32_t tokens : {3u, 64u}) {
    Generator random(5);
    const std::vector<float> x = random_floats(random, tokens * kCols, 4.0f);
    const auto device_x = on_device(x);
    const TestMatrix m = test_matrix(random, TensorType::kF32, kRows, kCols);
    const auto low = device_zeros<float>(tokens * kRows), inject = device_zeros<float>(tokens * kRows);
    const ProductJob to_low = {.matrix = m.device, .out = low.data(), .out_stride = kRows};
    const ProductJob to_inject = {.matrix = m.device, .out = inject.data(), .out_stride = kRows};
    const FinishedJob jobs[] = {{to_low, Finish::kLow}, {to_inject, Finish::kInject}};
    multiply_f32(jobs, 4.0f, {device_x.data(), kCols}, tokens, nullptr);

    std::vector<float> y(tokens * kRows), expected_low, expected_inject;
    const quant::Activations activations(x.data(), tokens, kCols, kCols);
    quant::multiply(m.host, activations, 0, kRows, y.data(), kRows, quant::Numerics::kExact);
    for (const float value : y) {
      expected_low.push_back(quant::silu_f32(value / 4.0f));
      expected_inject.push_back(2.0f * quant::sigmoid_f32(value / 4.0f));
    }
    expect_same_bits(values_of(low), expected_low, "low");
    expect_same_bits(values_of(inject), expected_inject, "inject");
  }
}

TEST(ProductsF32, NotANumberStaysInItsRow) {
  Generator random(6);
  std::vector<float> x = random_floats(random, 2 * 64);
  x[64 + 7] = NAN;
  const auto device_x = on_device(x);
  const TestMatrix m = test_matrix(random, TensorType::kQ8_0, 4, 64);
  const auto out = device_zeros<float>(8);
  const ProductJob job = {.matrix = m.device, .out = out.data(), .out_stride = 4};
  multiply_f32(std::span(&job, 1), {device_x.data(), 64}, 2, nullptr);
  const std::vector<float> y = values_of(out);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isfinite(y[i]));
    EXPECT_TRUE(std::isnan(y[4 + i]));
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
