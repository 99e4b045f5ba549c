// Every type as kernels read it against quant::reference: integers, scales, factors and dequantized values,
// for usual blocks and any bytes, at every address that a block may have.

#include "gpu-worker/cuda/dense_test_support.h"
#include "gpu-worker/cuda/formats_test_kernels.h"
#include "services/quant/reference.h"

namespace strata::gpu_worker::cuda {
namespace {

using namespace tests;
using gguf::TensorType;

constexpr uint32_t kBlocks = 13;  // odd: blocks of an odd number of bytes meet every alignment

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}
// Of a product with an integer 0 the sign is not fixed: no sum shows it.
bool same_but_zero(float a, float b) { return same(a, b) || (a == 0 && b == 0); }

void expect_unit(const TestUnit& unit, const quant::reference::Unit& expected) {
  for (int i = 0; i < 32; ++i) {
    ASSERT_EQ(unit.w[i], expected.w[i]) << "value " << i;
    ASSERT_TRUE(same_but_zero(unit.dequantized[i], quant::reference::dequantized(expected, i)))
        << "value " << i;
  }
  for (int half = 0; half < 2; ++half) {
    ASSERT_TRUE(same(unit.factor[half], expected.factor[half])) << unit.factor[half];
    ASSERT_EQ(unit.scale[half], expected.scale[half]);
    if (!expected.has_minimum) continue;
    ASSERT_EQ(unit.minimum[half], expected.minimum[half]);
  }
  ASSERT_TRUE(!expected.has_minimum || same(unit.minimum_factor, expected.minimum_factor));
}

void expect_units(TensorType type, const std::vector<std::byte>& bytes) {
  const auto& info = gguf::tensor_type_info(type);
  const uint32_t units = info.block_values / 32;
  std::vector<std::byte> padded = bytes;
  padded.resize((padded.size() + 15) / 16 * 16);
  const auto stored = on_device(padded);
  const auto device_units = device_zeros<TestUnit>(std::size_t{kBlocks} * units);
  ASSERT_TRUE(read_units(type, stored.data(), kBlocks, device_units.data(), nullptr));
  const auto read = values_of(device_units);
  for (uint32_t i = 0; i < kBlocks * units; ++i) {
    SCOPED_TRACE(testing::Message() << info.name << " unit " << i);
    const std::byte* block = bytes.data() + std::size_t{i / units} * info.block_bytes;
    expect_unit(read[i], quant::reference::unit(type, block, static_cast<int>(i % units)));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Formats, UnitsAreThoseOfTheReference) {
  Generator random(3);
  uint32_t types = 0;
  for (const TensorType type : quant::tests::all_types()) {
    const auto& info = gguf::tensor_type_info(type);
    if (info.block_values == 1) continue;
    ++types;
    for (int round = 0; round < 4; ++round) {
      auto bytes = quant::tests::weights(random, type, kBlocks, info.block_values);
      if (round % 2 == 1) {
        for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
      }
      expect_units(type, bytes);
    }
  }
  EXPECT_EQ(types, 22u);
}

TEST(Formats, FloatsAreThoseOfTheHost) {
  Generator random(4);
  constexpr uint32_t kCount = 301;
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    auto bytes = quant::tests::weights(random, type, 1, kCount);
    for (std::size_t i = 0; i < bytes.size() / 2; ++i) bytes[i] = static_cast<std::byte>(random.below(256));
    const auto stored = on_device(bytes);
    const auto values = device_zeros<float>(kCount);
    ASSERT_TRUE(read_floats(type, stored.data(), kCount, values.data(), nullptr));
    std::vector<float> expected(kCount);
    quant::dequantize_row(type, bytes.data(), expected.data(), kCount);
    expect_same_bits(values_of(values), expected, "value");
  }
}

}  // namespace
}  // namespace strata::gpu_worker::cuda
