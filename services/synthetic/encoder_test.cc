// Every encoder against the decoder of the products.
#include "services/synthetic/encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "services/quant/kernels.h"
#include "services/quant/quant.h"
#include "services/synthetic/random.h"

namespace strata::synthetic {
namespace {

using enum gguf::TensorType;

std::vector<float> decoded(const Encoder& encoder, const std::vector<float>& x) {
  const std::string bytes = encode_values(encoder, x);
  std::vector<float> values(x.size());
  quant::dequantize_row(encoder.type, reinterpret_cast<const std::byte*>(bytes.data()), values.data(),
                        values.size());
  return values;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(double{got[i]} - double{wanted[i]}, 2);
    norm += std::pow(double{wanted[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// What an encoder costs normal values: the difference's share of their size. Half a step of the levels
// decides it (a bit more halves it), so a misplaced bit shows as several times that, and far less would mean
// that a type is not what it says.
const std::map<gguf::TensorType, double> kErrors = {
    {kF32, 0},       {kF16, 0.00021},   {kBF16, 0.00165}, {kQ4_0, 0.0798}, {kQ4_1, 0.0755},
    {kQ5_0, 0.0402}, {kQ5_1, 0.0366},   {kQ8_0, 0.0051},  {kQ2_0, 0.342},  {kQ2_K, 0.321},
    {kQ3_K, 0.143},  {kQ4_K, 0.0756},   {kQ5_K, 0.0369},  {kQ6_K, 0.0175}, {kIQ1_S, 0.451},
    {kIQ1_M, 0.426}, {kIQ2_XXS, 0.356}, {kIQ2_XS, 0.312}, {kIQ2_S, 0.266}, {kIQ3_XXS, 0.2015},
    {kIQ3_S, 0.144}, {kIQ4_NL, 0.0747}, {kIQ4_XS, 0.075}, {kMXFP4, 0.110}, {kNVFP4, 0.0889},
};

TEST(Encoders, CoverEveryTypeThatProductsKnow) {
  for (uint32_t id = 0; id < quant::kTensorTypeIds; ++id) {
    const gguf::TensorTypeInfo* info = gguf::tensor_type_info(id);
    if (info == nullptr) continue;
    EXPECT_EQ(find_encoder(info->type) != nullptr, quant::require_supported(info->type).ok()) << info->name;
  }
  EXPECT_EQ(encoders().size(), kErrors.size());
}

TEST(Encoders, GiveNormalValuesBackAsExactlyAsTheirBitsAllow) {
  Random random(7);
  const std::vector<float> x = random.normals(64 * 256, 0.05f);
  for (const Encoder& encoder : encoders()) {
    SCOPED_TRACE(gguf::tensor_type_info(encoder.type).name);
    const double error = relative_error(decoded(encoder, x), x);
    EXPECT_LE(error, kErrors.at(encoder.type) * 1.05);
    EXPECT_GE(error, kErrors.at(encoder.type) * 0.95);
  }
}

TEST(Encoders, FollowTheSizeOfTheValuesFromGroupToGroup) {
  Random random(8);
  std::vector<float> x = random.normals(64 * 256, 1.0f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i / 32 % 2 == 0 ? 0.25f : 0.5f;
  for (const Encoder& encoder : encoders()) {
    SCOPED_TRACE(gguf::tensor_type_info(encoder.type).name);
    const bool one_factor_for_both = encoder.type == kQ2_0;
    EXPECT_LE(relative_error(decoded(encoder, x), x),
              kErrors.at(encoder.type) * (one_factor_for_both ? 1.6 : 1.3));
  }
}

TEST(Encoders, KeepZerosAndTheSmallest) {
  const std::vector<float> zeros(256);
  for (const Encoder& encoder : encoders()) {
    SCOPED_TRACE(gguf::tensor_type_info(encoder.type).name);
    for (const float value : decoded(encoder, zeros)) EXPECT_EQ(value, 0.0f);
    // Near the end of binary16: coarse, but finite and not larger than what went in by much.
    Random random(9);
    for (const float value : decoded(encoder, random.normals(256, 1e-6f))) EXPECT_LT(std::fabs(value), 2e-5f);
  }
}

TEST(Encoders, SurviveOneSignAndOutliers) {
  Random random(10);
  std::vector<float> positive = random.normals(256, 0.2f, 1.0f);
  std::vector<float> outlier = random.normals(256, 0.01f);
  outlier[77] = -3.0f;
  for (const Encoder& encoder : encoders()) {
    SCOPED_TRACE(gguf::tensor_type_info(encoder.type).name);
    EXPECT_LT(relative_error(decoded(encoder, positive), positive), 0.6);
    EXPECT_LT(relative_error(decoded(encoder, outlier), outlier), 0.9);
  }
}

}  // namespace
}  // namespace strata::synthetic
