#pragma once
// binary16 as kernels use it: storage and conversions. Arithmetic on halves is left out: the project's is in
// float32.

#ifndef STRATA_CUDA_EMULATION
#error "gpu-worker/cuda/emulation/include is only for targets of the emulation"
#endif

#include <bit>
#include <cstdint>

#include "gpu-worker/cuda/emulation/vector_types.h"

struct __half {
  unsigned short bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }

inline float __half2float(__half h) {
  const uint32_t magnitude = h.bits & 0x7fffu;
  const uint32_t sign = (h.bits & 0x8000u) << 16;
  // 2^112 moves the exponent to float's place and normalises subnormals, exactly.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t bits = magnitude >= 0x7c00u ? magnitude << 13 | 0x7f800000u : std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(bits | sign);
}

// To nearest even; too large becomes infinity, every NaN 0x7fff as on a GPU.
inline __half __float2half_rn(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return {0x7fff};
  uint32_t rounded = 0;
  if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    rounded = 0x7c00;
  } else if (magnitude <
             0x38800000u) {  // subnormal: a sum with 0.5 leaves multiples of 2^-24 in the low bits
    rounded = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    rounded = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<unsigned short>(rounded | sign)};
}
inline __half __float2half(float x) { return __float2half_rn(x); }

inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }
