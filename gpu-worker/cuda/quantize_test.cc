// Activations in 8 bits against quant::quantize_q8, byte for byte.

#include "gpu-worker/cuda/quantize.h"

#include <limits>

#include "gpu-worker/cuda/dense_test_support.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_quantized(const std::vector<float>& x, uint32_t cols) {
  const auto rows = static_cast<uint32_t>(x.size() / cols);
  const auto device_x = on_device(x);
  const uint64_t stride = q8_row_stride(cols);
  auto out = device_zeros<std::byte>(rows * stride);
  quantize_q8({.x = {device_x.data(), cols},
               .rows = rows,
               .cols = cols,
               .out = {.data = out.data(), .stride = stride, .cols = cols}},
              nullptr);
  expect_q8_of(values_of(out), stride, x, cols);
}

TEST(QuantizeQ8, RowsOfAllWidths) {
  Generator random(1);
  for (const uint32_t cols : {32u, 64u, 96u, 160u, 640u, 2560u}) {
    for (const uint32_t rows : {1u, 3u})
      expect_quantized(quant::tests::activations(random, rows * cols), cols);
  }
}

// A block each: zeros, values around the smallest that count, the largest, ties, infinities and NaNs.
TEST(QuantizeQ8, BlocksAtTheEdges) {
  Generator random(2);
  for (const float size : {0.0f, -0.0f, 0x1p-149f, 0x1p-126f, 0x1p-101f, 0x1p-100f, 0x1p-99f, 1.0f, 127.0f,
                           0x1p127f, std::numeric_limits<float>::max(), kInfinity, -kInfinity, kNan}) {
    std::vector<float> x(96);
    for (float& v : x) v = random.uniform();
    for (int i = 0; i < 32; ++i)
      x[32 + i] = std::isfinite(size) ? size * (static_cast<float>(i) - 15.5f) / 16.0f : 0.0f;
    x[41] = size;
    expect_quantized(x, 96);
  }
}

struct SiluCase {
  uint32_t rows = 1, cols = 32;
  bool in_place = false, floats = true, q8 = true;
};

void expect_silu_multiplied(const SiluCase& c, const uint32_t* row_count) {
  Generator random(c.rows * 100 + c.cols);
  std::vector<float> gate = random_floats(random, std::size_t{c.rows} * c.cols, 8.0f);
  const std::vector<float> up = quant::tests::activations(random, gate.size());
  gate[0] = 100.0f;
  gate[gate.size() / 2] = -100.0f;
  const auto device_gate = on_device(gate), device_up = on_device(up);
  const auto device_out = device_zeros<float>(gate.size());
  const uint64_t stride = q8_row_stride(c.cols);
  const auto device_q8 = device_zeros<std::byte>(c.rows * stride);
  DeviceBuffer<uint32_t> count;
  SiluMultiplyArgs args{
      .gate = {device_gate.data(), c.cols}, .up = {device_up.data(), c.cols}, .rows = c.rows, .cols = c.cols};
  if (row_count != nullptr) {
    count = on_device(std::vector<uint32_t>{*row_count});
    args.row_count = count.data();
  }
  const auto& out = c.in_place ? device_gate : device_out;
  if (c.floats) args.out = {out.data(), c.cols};
  if (c.q8) args.q8 = {.data = device_q8.data(), .stride = stride, .cols = c.cols};
  silu_multiply(args, nullptr);

  const std::size_t done = std::size_t{row_count != nullptr ? *row_count : c.rows} * c.cols;
  std::vector<float> h(gate.size());
  quant::silu_multiply(gate.data(), up.data(), h.data(), done);
  if (c.floats) {
    if (c.in_place)
      std::copy(gate.begin() + static_cast<std::ptrdiff_t>(done), gate.end(),
                h.begin() + static_cast<std::ptrdiff_t>(done));
    expect_same_bits(values_of(out), h, "h");
  }
  if (c.q8) {
    expect_q8_of(values_of(device_q8), stride,
                 std::vector<float>(h.begin(), h.begin() + static_cast<std::ptrdiff_t>(done)), c.cols);
    const auto stored = values_of(device_q8);
    for (std::size_t i = done / c.cols * stride; i < stored.size(); ++i)
      ASSERT_EQ(stored[i], std::byte{0}) << i;
  }
}

TEST(SiluMultiply, AllForms) {
  expect_silu_multiplied({.rows = 1, .cols = 640}, nullptr);
  expect_silu_multiplied({.rows = 3, .cols = 96, .floats = false}, nullptr);
  expect_silu_multiplied({.rows = 5, .cols = 33, .q8 = false}, nullptr);
  expect_silu_multiplied({.rows = 5, .cols = 7, .in_place = true, .q8 = false}, nullptr);
}

TEST(SiluMultiply, ManyRowsFourBlocksAWarp) {
  const uint32_t rows = 32770, some = 32767;
  expect_silu_multiplied({.rows = rows, .cols = 32, .floats = false}, nullptr);
  expect_silu_multiplied({.rows = rows, .cols = 32}, &some);
  expect_silu_multiplied({.rows = rows, .cols = 28, .in_place = true, .q8 = false}, &some);
}

TEST(SiluMultiply, OnlyTheRowsThatExist) {
  for (const uint32_t rows : {0u, 1u, 4u, 6u}) {
    expect_silu_multiplied({.rows = 6, .cols = 64}, &rows);
    expect_silu_multiplied({.rows = 6, .cols = 40, .in_place = true, .q8 = false}, &rows);
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
