#pragma once
// exp, sigmoid, SiLU and softplus from IEEE operations only (docs/numerics.md, "Functions"). In the variant's
// own namespace, see variant.h.

#include <cstdint>

#include "services/quant/half.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

inline constexpr float kRoundToInteger =
    0x1.8p23f;  // adding it leaves the nearest integer (ties to even) in the low bits
inline constexpr uint32_t kRoundToIntegerBits = 0x4b400000u;

// The integer nearest to x, ties to even, for |x| < 2^22; anything for others.
STRATA_HOST_DEVICE inline int32_t nearest_integer(float x) {
  return static_cast<int32_t>(bits_of_float(x + kRoundToInteger) - kRoundToIntegerBits);
}

STRATA_HOST_DEVICE inline float power_of_two(int32_t exponent) {
  return float_of_bits(static_cast<uint32_t>(exponent + 127) << 23);
}

STRATA_HOST_DEVICE inline float exp_value(float x) {
  const float bounded = x > 88.72284f ? 88.72284f : x < -104.0f ? -104.0f : x;  // NaN stays
  const int32_t n = nearest_integer(bounded * 1.44269504f) & 0x1ff;
  const int32_t exponent = (n ^ 0x100) - 0x100;  // nine bits, sign-extended: in range even for NaN
  const float steps = static_cast<float>(exponent);
  float r = __builtin_fmaf(steps, -0x1.62e4p-1f, bounded);
  r = __builtin_fmaf(steps, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040.0f;
  p = __builtin_fmaf(p, r, 1.0f / 720.0f);
  p = __builtin_fmaf(p, r, 1.0f / 120.0f);
  p = __builtin_fmaf(p, r, 1.0f / 24.0f);
  p = __builtin_fmaf(p, r, 1.0f / 6.0f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  p = __builtin_fmaf(p, r, 1.0f);
  const int32_t half = exponent >> 1;
  const float value = p * power_of_two(half) * power_of_two(exponent - half);
  return x > 88.72284f ? __builtin_inff() : x < -104.0f ? 0.0f : value;
}

STRATA_HOST_DEVICE inline float magnitude(float x) { return float_of_bits(bits_of_float(x) & 0x7fffffffu); }

STRATA_HOST_DEVICE inline float sigmoid_value(float x) {
  const float e = exp_value(-magnitude(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

STRATA_HOST_DEVICE inline float silu_value(float x) { return x * sigmoid_value(x); }

STRATA_HOST_DEVICE inline float softplus_value(float x) {
  const float e = exp_value(-magnitude(x));
  const float s = e / (2.0f + e);
  const float z = s * s;
  float p = 1.0f / 15.0f;
  p = __builtin_fmaf(p, z, 1.0f / 13.0f);
  p = __builtin_fmaf(p, z, 1.0f / 11.0f);
  p = __builtin_fmaf(p, z, 1.0f / 9.0f);
  p = __builtin_fmaf(p, z, 1.0f / 7.0f);
  p = __builtin_fmaf(p, z, 1.0f / 5.0f);
  p = __builtin_fmaf(p, z, 1.0f / 3.0f);
  const float t = s + s;
  const float log1p = __builtin_fmaf(t * z, p, t);
  return x > 20.0f ? x : (x > 0.0f ? x : 0.0f) + log1p;
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
