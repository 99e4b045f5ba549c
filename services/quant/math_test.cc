// The project's own functions against double precision, in units in the last place of the exact result.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "services/quant/quant.h"

namespace strata::quant {
namespace {

// Distance in float32 steps at the size of `exact`; subnormal results are counted in the smallest normal
// step.
double ulps(float got, double exact) {
  const double size = std::max(std::fabs(exact), static_cast<double>(std::numeric_limits<float>::min()));
  return std::fabs(got - exact) / std::ldexp(1.0, std::ilogb(size) - 23);
}

// The largest error over about 400,000 points between first and last, near 0 as densely as elsewhere.
template <class F, class G>
double worst(F function, G exact, float first, float last) {
  double largest = 0;
  const auto check = [&](float x) {
    largest = std::max(largest, ulps(function(x), exact(static_cast<double>(x))));
  };
  const double step = (static_cast<double>(last) - first) / 300'000;
  for (int i = 0; i <= 300'000; ++i) check(static_cast<float>(first + i * step));
  for (float x = 1e-30f; x < last; x *= 1.001f) check(x);
  for (float x = -1e-30f; x > first; x *= 1.001f) check(x);
  return largest;
}

double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(MathFunctions, AreWithinAFewUnitsInTheLastPlace) {
  const double exp = worst(exp_f32, [](double x) { return std::exp(x); }, -87.3f, 88.72f);
  const double sigmoid = worst(sigmoid_f32, exact_sigmoid, -87.3f, 100.0f);
  const double silu = worst(silu_f32, [](double x) { return x * exact_sigmoid(x); }, -87.3f, 100.0f);
  const double softplus = worst(
      softplus_f32, [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); },
      -87.3f, 100.0f);
  RecordProperty("exp", std::to_string(exp));
  RecordProperty("sigmoid", std::to_string(sigmoid));
  RecordProperty("silu", std::to_string(silu));
  RecordProperty("softplus", std::to_string(softplus));
  EXPECT_LE(exp, 1.5);
  EXPECT_LE(sigmoid, 3.0);
  EXPECT_LE(silu, 3.5);
  EXPECT_LE(softplus, 3.0);
  EXPECT_GT(exp, 0.4) << "float32 cannot be that exact: the test compares nothing";
}

TEST(MathFunctions, ReachSubnormalsZeroAndInfinity) {
  EXPECT_LE(worst(exp_f32, [](double x) { return std::exp(x); }, -103.9f, -87.3f), 1.0);
  EXPECT_GT(exp_f32(-103.0f), 0.0f);
  EXPECT_EQ(exp_f32(-105.0f), 0.0f);
  EXPECT_EQ(exp_f32(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp_f32(89.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(sigmoid_f32(200.0f), 1.0f);
  EXPECT_EQ(sigmoid_f32(-200.0f), 0.0f);
  EXPECT_EQ(softplus_f32(20.5f), 20.5f);
  EXPECT_EQ(silu_f32(0.0f), 0.0f);
}

TEST(MathFunctions, PassNaNOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float (*function)(float) : {exp_f32, sigmoid_f32, silu_f32, softplus_f32}) {
    EXPECT_TRUE(std::isnan(function(nan)));
    EXPECT_TRUE(std::isnan(function(-nan)));
  }
}

}  // namespace
}  // namespace strata::quant
