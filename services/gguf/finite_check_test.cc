// Each place in a block that can hold a NaN or an infinity, as quant-formats lists them, one at a time.

#include "services/gguf/finite_check.h"

#include <gmock/gmock.h>

#include "services/gguf/file_builder.h"

namespace strata::gguf {
namespace {

using enum TensorType;

struct Place {
  TensorType type;
  std::size_t at;
  std::string bytes;  // what makes the block not finite
};

std::string half(uint16_t bits) { return FileBuilder::number(bits); }

const uint16_t kHalfNan = 0x7E00;
const uint16_t kHalfMinusInf = 0xFC00;

std::vector<Place> places() {
  std::vector<Place> all = {
      {kF32, 0, FileBuilder::number(0x7F800000U)},
      {kF32, 0, FileBuilder::number(0xFFC00001U)},
      {kF64, 0, FileBuilder::number(0xFFF0000000000000U)},
      {kBF16, 0, half(0x7F80)},
      {kBF16, 0, half(0xFFC0)},
      {kQ8_K, 0, FileBuilder::number(0x7FC00000U)},
      {kMXFP4, 0, "\xff"},
  };
  for (const TensorType type : {kF16, kQ4_0, kQ5_0, kQ8_0, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ3_XXS, kIQ3_S,
                                kIQ1_S, kIQ4_NL, kIQ4_XS, kQ1_0, kQ2_0, kQ4_1, kQ5_1, kQ8_1, kQ4_K, kQ5_K}) {
    all.push_back({type, 0, half(kHalfNan)});
  }
  for (const TensorType type : {kQ4_1, kQ5_1, kQ8_1, kQ4_K, kQ5_K})
    all.push_back({type, 2, half(kHalfMinusInf)});
  all.push_back({kQ2_K, 80, half(kHalfMinusInf)});
  all.push_back({kQ2_K, 82, half(kHalfNan)});
  all.push_back({kQ3_K, 108, half(kHalfNan)});
  all.push_back({kQ6_K, 208, half(kHalfNan)});
  all.push_back({kTQ1_0, 52, half(kHalfNan)});
  all.push_back({kTQ2_0, 64, half(kHalfNan)});
  // 0x7C00 spread over the top nibbles of four u16, the lowest nibble first.
  all.push_back({kIQ1_M, 48, half(0x0FFF) + half(0x0FFF) + half(0xCFFF) + half(0x7FFF)});
  return all;
}

std::string two_blocks(TensorType type, const std::string& second_block) {
  const TensorTypeInfo& info = tensor_type_info(type);
  return FileBuilder()
      .tensor("first", kF32, {1}, std::string(4, '\0'))
      .tensor("t", type, {info.block_values, 2}, std::string(info.block_bytes, '\0') + second_block)
      .build();
}

TEST(FiniteCheckTest, FindsEveryPlaceThatIsNotFinite) {
  for (const Place& place : places()) {
    const TensorTypeInfo& info = tensor_type_info(place.type);
    SCOPED_TRACE(fmt::format("{} at {}", info.name, place.at));
    std::string block(info.block_bytes, '\0');
    block.replace(place.at, place.bytes.size(), place.bytes);
    const std::string bytes = two_blocks(place.type, block);
    EXPECT_TRUE(GgufFile::parse(bytes_of(bytes), "f").has_value()) << "values are looked at on request only";
    const auto file = GgufFile::parse(bytes_of(bytes), "f", {.check_values = true});
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code(), Code::kDataLoss);
    EXPECT_THAT(file.error().message(), testing::HasSubstr("tensor 't': block 1"));
  }
}

TEST(FiniteCheckTest, AcceptsTheLargestFiniteScaleAndAnyQuants) {
  for (uint32_t id = 0; id < 64; ++id) {
    const TensorTypeInfo* info = tensor_type_info(id);
    if (info == nullptr) continue;
    SCOPED_TRACE(info->name);
    // Quants of all ones; every scale the largest finite number.
    std::string block(info->block_bytes, '\xff');
    for (const Place& place : places()) {
      if (place.type != info->type) continue;
      if (place.type == kF32 || place.type == kQ8_K)
        block.replace(0, 4, FileBuilder::number(0xFF7FFFFFU));
      else if (place.type == kF64)
        block.replace(0, 8, FileBuilder::number(0xFFEFFFFFFFFFFFFFU));
      else if (place.type == kBF16)
        block.replace(0, 2, half(0xFF7F));
      else if (place.type == kMXFP4)
        block[0] = '\xfe';
      else if (place.type == kIQ1_M)
        block.replace(54, 2, half(0x7FFF)), block.replace(52, 2, half(0xBFFF));
      else
        block.replace(place.at, 2, half(0xFBFF));
    }
    const std::string bytes = two_blocks(info->type, block);
    const auto file = GgufFile::parse(bytes_of(bytes), "f", {.check_values = true});
    EXPECT_TRUE(file.has_value()) << file.error().message();
  }
}

}  // namespace
}  // namespace strata::gguf
