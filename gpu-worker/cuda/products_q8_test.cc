// Products with 8-bit activations against quant::multiply, to the bit: every type on every path, shapes
// around all the steps of the kernels, several matrices in a call.

#include "gpu-worker/cuda/products_q8.h"

#include "gpu-worker/cuda/dense_test_support.h"
#include "gpu-worker/cuda/products_q8_source.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

constexpr float kUntouched = -77.25f;

std::vector<TensorType> quantized_types() {
  std::vector<TensorType> types;
  for (const TensorType type : quant::tests::all_types()) {
    if (quant::is_quantized(type)) types.push_back(type);
  }
  return types;
}
// One for each way in which units differ: nothing but a factor, an offset, a float minimum, scales of 32 and
// 16 values with and without minimum, two factors, an odd number of bytes.
constexpr std::array kKinds = {TensorType::kQ8_0, TensorType::kQ2_0, TensorType::kQ5_1,  TensorType::kQ4_K,
                               TensorType::kQ2_K, TensorType::kQ6_K, TensorType::kNVFP4, TensorType::kMXFP4};

// Activations on both sides; row_bytes more than a row needs between rows.
struct Inputs {
  quant::Activations host;
  DeviceBuffer<std::byte> stored;
  Q8Rows device;
};
Inputs inputs(const std::vector<float>& x, uint32_t tokens, uint32_t cols, uint64_t more_bytes = 0) {
  const uint64_t stride = q8_row_stride(cols) + more_bytes;
  std::vector<std::byte> bytes(tokens * stride);
  for (uint32_t t = 0; t < tokens; ++t)
    quant::quantize_q8({x.data() + std::size_t{t} * cols, cols}, bytes.data() + t * stride);
  Inputs in{
      .host = quant::Activations(x.data(), tokens, cols, cols), .stored = on_device(bytes), .device = {}};
  in.host.ensure_q8();
  in.device = {.data = in.stored.data(), .stride = stride, .cols = cols};
  return in;
}

void expect_product(const DeviceBuffer<float>& out, uint64_t stride, const quant::Matrix& w,
                    const quant::Activations& x) {
  std::vector<float> expected(x.tokens() * stride, kUntouched);
  quant::multiply(w, x, 0, w.rows, expected.data(), stride, quant::Numerics::kReproducible);
  expect_same_bits(values_of(out), expected, "product");
}

struct Case {
  std::vector<TensorType> types;  // of the jobs
  std::vector<uint32_t> rows;     // of the jobs
  uint32_t cols = 0;
  uint32_t tokens = 1;
  float scale = 1.0f;
  uint64_t more_bytes = 0;
};

void expect_products(const Case& c) {
  SCOPED_TRACE(testing::Message() << gguf::tensor_type_info(c.types[0]).name << " " << c.rows[0] << " x "
                                  << c.cols << ", " << c.tokens << " tokens");
  Generator random(c.cols * 31 + c.tokens);
  const auto x = quant::tests::activations(random, std::size_t{c.tokens} * c.cols);
  const Inputs in = inputs(x, c.tokens, c.cols, c.more_bytes);
  std::vector<TestMatrix> matrices;
  std::vector<DeviceBuffer<float>> outs;
  std::vector<ProductJob> jobs;
  for (std::size_t i = 0; i < c.types.size(); ++i) {
    const uint64_t stride = c.rows[i] + 3;
    matrices.push_back(test_matrix(random, c.types[i], c.rows[i], c.cols, c.scale));
    outs.push_back(on_device(std::vector<float>(c.tokens * stride, kUntouched)));
    jobs.push_back({.matrix = matrices[i].device, .out = outs[i].data(), .out_stride = stride});
  }
  multiply_q8(jobs, in.device, c.tokens, nullptr);
  for (std::size_t i = 0; i < c.types.size(); ++i)
    expect_product(outs[i], c.rows[i] + 3, matrices[i].host, in.host);
}

TEST(ProductsQ8, EveryTypeOneToken) {
  for (const TensorType type : quantized_types())
    expect_products({.types = {type}, .rows = {13}, .cols = 1280});
}

TEST(ProductsQ8, EveryTypeFewTokens) {
  for (const TensorType type : quantized_types())
    expect_products({.types = {type}, .rows = {7}, .cols = 768, .tokens = 3, .scale = 0.75f});
}

TEST(ProductsQ8, EveryCountOfTokens) {
  for (const TensorType type : kKinds) {
    for (const uint32_t tokens : {2u, 4u, 5u, 7u, 8u, 9u, 16u, 17u, 33u})
      expect_products({.types = {type}, .rows = {9}, .cols = 256, .tokens = tokens, .more_bytes = 48});
  }
}

// Less than a chunk, chunks and a rest, more chunks than are copied ahead.
TEST(ProductsQ8, ColumnsThatFillNoChunk) {
  for (const TensorType type :
       {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kIQ4_NL, TensorType::kMXFP4}) {
    for (const uint32_t cols : {32u, 64u, 96u, 640u, 1024u, 1056u, 2560u, 6144u})
      expect_products({.types = {type}, .rows = {6}, .cols = cols, .tokens = cols < 2000 ? 2u : 1u});
  }
  for (const TensorType type : {TensorType::kQ2_K, TensorType::kQ3_K, TensorType::kIQ2_XXS})
    expect_products({.types = {type}, .rows = {5}, .cols = 5120});
  // All chunks stay in shared memory for the next token, or do not.
  for (const uint32_t cols : {6144u, 12288u})
    expect_products({.types = {TensorType::kQ8_0}, .rows = {5}, .cols = cols, .tokens = 3});
}

TEST(ProductsQ8, EveryCountOfRows) {
  for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 8u, 31u, 64u})
    expect_products({.types = {TensorType::kQ5_0}, .rows = {rows}, .cols = 64});
}

TEST(ProductsQ8, MatricesOfOneCall) {
  expect_products({.types = {TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ8_0, TensorType::kQ6_K,
                             TensorType::kQ4_K, TensorType::kQ8_0},
                   .rows = {6, 1, 3, 9, 4, 2},
                   .cols = 512,
                   .tokens = 2,
                   .scale = -1.5f});
  expect_products(
      {.types = {TensorType::kQ8_0, TensorType::kQ8_0}, .rows = {70, 3}, .cols = 64, .tokens = 129});
}

// A fault in one block of one token, and factors that are infinite or not a number.
TEST(ProductsQ8, FaultsStayInTheirRowsAndTokens) {
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_K}) {
    for (const uint32_t tokens : {3u, 130u}) {
      Generator random(5);
      constexpr uint32_t kRows = 66, kCols = 256;
      auto x = quant::tests::activations(random, std::size_t{tokens} * kCols);
      x[kCols + 40] = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(x.begin() + 2 * kCols, kCols, 0.0f);
      const Inputs in = inputs(x, tokens, kCols);
      TestMatrix w = test_matrix(random, type, kRows, kCols);
      for (const auto& [row, half] : {std::pair<uint32_t, uint32_t>{2, 0x7c00}, {5, 0x7e01}, {64, 0xfc00}}) {
        w.bytes[row * w.host.row_bytes] = static_cast<std::byte>(half & 255);
        w.bytes[row * w.host.row_bytes + 1] = static_cast<std::byte>(half >> 8);
      }
      ASSERT_TRUE(w.stored.upload(w.bytes).ok());
      const auto out = on_device(std::vector<float>(std::size_t{tokens} * kRows, kUntouched));
      multiply_q8(std::array{ProductJob{.matrix = w.device, .out = out.data(), .out_stride = kRows}},
                  in.device, tokens, nullptr);
      expect_product(out, kRows, w.host, in.host);
    }
  }
}

// silu(gate x) * (up x), then a product with that, which is quantized on the way.
void expect_gated_product(TensorType type, uint32_t width, uint32_t cols, uint32_t rows) {
  SCOPED_TRACE(testing::Message() << gguf::tensor_type_info(type).name << " " << width << " x " << cols
                                  << ", " << rows << " rows");
  Generator random(width + cols + rows);
  const auto x = quant::tests::activations(random, std::size_t{rows} * cols);
  const Inputs in = inputs(x, rows, cols);
  const TestMatrix gate = test_matrix(random, type, width, cols, 0.75f);
  const TestMatrix up = test_matrix(random, type, width, cols, -1.5f);
  const TestMatrix down = test_matrix(random, type, 21, width);
  const auto h = on_device(std::vector<float>(std::size_t{rows} * width, kUntouched));
  const auto out = on_device(std::vector<float>(std::size_t{rows} * 21, kUntouched));
  multiply_q8_silu({.matrix = gate.device, .out = h.data(), .out_stride = width}, up.device, in.device, rows,
                   nullptr);
  multiply_q8_floats({.matrix = down.device, .out = out.data(), .out_stride = 21}, {h.data(), width}, rows,
                     nullptr);

  std::vector<float> gates(std::size_t{rows} * width), ups(gates);
  quant::multiply(gate.host, in.host, 0, width, gates.data(), width, quant::Numerics::kReproducible);
  quant::multiply(up.host, in.host, 0, width, ups.data(), width, quant::Numerics::kReproducible);
  std::vector<float> expected(gates.size());
  quant::silu_multiply(gates.data(), ups.data(), expected.data(), expected.size());
  expect_same_bits(values_of(h), expected, "gated");
  quant::Activations activations(expected.data(), rows, width, width);
  activations.ensure_q8();
  expect_product(out, 21, down.host, activations);
}

TEST(ProductsQ8, GateAndUpInOneLaunch) {
  for (const uint32_t rows : {1u, 3u}) {
    for (const TensorType type : kKinds) expect_gated_product(type, 256, 512, rows);
    expect_gated_product(TensorType::kQ8_0, 640, 2560, rows);
    expect_gated_product(TensorType::kQ4_0, 160, 32, rows);
    expect_gated_product(TensorType::kQ5_0, 6176, 96, rows);  // more than two chunks, the last one odd
  }
}

void expect_path(TensorType type, uint32_t rows, uint32_t cols, uint32_t tokens, ProductPath path,
                 bool tensor_cores) {
  SCOPED_TRACE(testing::Message() << gguf::tensor_type_info(type).name << " " << rows << " x " << cols << ", "
                                  << tokens << " tokens, path " << static_cast<int>(path)
                                  << (tensor_cores ? " on" : " without") << " tensor cores");
  Generator random(rows + cols + tokens);
  const auto x = quant::tests::activations(random, std::size_t{tokens} * cols);
  const Inputs in = inputs(x, tokens, cols, 16);
  const TestMatrix w = test_matrix(random, type, rows, cols, 0.5f);
  const auto out = on_device(std::vector<float>(std::size_t{tokens} * rows, kUntouched));
  ProductLaunch launch{.source = {}, .type = type, .tokens_max = tokens};
  launch.source.matrices[0] = {.data = w.device.data,
                               .row_bytes = w.device.row_bytes,
                               .rows = rows,
                               .scale = w.device.scale,
                               .out = out.data(),
                               .out_stride = rows};
  launch.source.matrix_count = 1;
  launch.source.cols = cols;
  launch.source.x = in.device;
  launch.source.tokens = tokens;
  launch_products_q8(launch, path, tensor_cores, nullptr);
  expect_product(out, rows, w.host, in.host);
}

// Both kinds of integer products in the emulation, the one that it can run on a GPU.
std::vector<bool> kinds_of_products() {
#ifdef STRATA_CUDA_EMULATION
  if (has_tensor_cores()) return {false, true};
#endif
  return {has_tensor_cores()};
}

TEST(ProductsQ8, EveryTypeInTiles) {
  for (const bool tensor_cores : kinds_of_products()) {
    for (const TensorType type : quantized_types()) {
      expect_path(type, 67, 512, 66, ProductPath::kSmallTiles, tensor_cores);
      expect_path(type, 35, 256, 131, ProductPath::kLargeTiles, tensor_cores);
    }
  }
}

// Rows, tokens and units that fill no tile or chunk.
TEST(ProductsQ8, ShapesInTiles) {
  for (const bool tensor_cores : kinds_of_products()) {
    for (const ProductPath path : {ProductPath::kSmallTiles, ProductPath::kLargeTiles}) {
      for (const uint32_t cols : {32u, 96u, 160u, 224u})
        expect_path(TensorType::kQ8_0, 5, cols, 3, path, tensor_cores);
      expect_path(TensorType::kQ5_1, 129, 64, 1, path, tensor_cores);
      expect_path(TensorType::kQ2_0, 1, 192, 129, path, tensor_cores);
    }
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
