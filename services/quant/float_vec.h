#pragma once
// The widest vector of float32 of a variant: what float dot products are made of (product_f32.h).
//
//   FloatVec             kFloatWidth neighbouring values or lanes
//   kFloatAccumulators   how many of them registers hold beside what is loaded

#include <cstddef>
#include <cstdint>

#include "services/quant/simd.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// sum_of_lanes(a): lanes l and l + half, then half of the half, down to one number.
#ifdef __AVX2__
inline float sum_of_lanes(__m256 a) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
#endif

#ifdef __AVX512F__

using FloatVec = __m512;
inline constexpr uint32_t kFloatWidth = 16;
inline constexpr uint32_t kFloatAccumulators = 16;

inline FloatVec zero_vec() { return _mm512_setzero_ps(); }
inline FloatVec load_vec(const void* p) { return _mm512_loadu_ps(p); }
inline void store_vec(FloatVec a, float* p) { _mm512_storeu_ps(p, a); }
inline FloatVec plus(FloatVec a, FloatVec b) { return _mm512_add_ps(a, b); }
inline FloatVec fma_vec(FloatVec a, FloatVec b, FloatVec c) { return _mm512_fmadd_ps(a, b, c); }
inline float sum_of_lanes(FloatVec a) {
  return sum_of_lanes(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}
inline FloatVec load_halfs(const std::byte* p) { return _mm512_cvtph_ps(load32(p)); }
inline FloatVec load_bf16(const std::byte* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16));
}

#else

using FloatVec = Floats8;
inline constexpr uint32_t kFloatWidth = 8;
inline constexpr uint32_t kFloatAccumulators = 8;

inline FloatVec zero_vec() { return zero_floats(); }
inline FloatVec load_vec(const void* p) { return load_floats(p); }
inline void store_vec(FloatVec a, float* p) { store_floats(a, p); }
inline FloatVec fma_vec(FloatVec a, FloatVec b, FloatVec c) { return fma8(a, b, c); }
#ifdef __AVX2__
inline FloatVec load_halfs(const std::byte* p) { return _mm256_cvtph_ps(load16(p)); }
inline FloatVec load_bf16(const std::byte* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
}
#else
inline float sum_of_lanes(FloatVec a) {
  for (uint32_t half = kFloatWidth / 2; half > 0; half /= 2) {
    for (uint32_t l = 0; l < half; ++l) a.v[l] += a.v[l + half];
  }
  return a.v[0];
}
inline FloatVec load_halfs(const std::byte* p) {
  FloatVec r;
  for (int i = 0; i < 8; ++i) r.v[i] = half_to_float(load_u16(p + 2 * i));
  return r;
}
inline FloatVec load_bf16(const std::byte* p) {
  FloatVec r;
  for (int i = 0; i < 8; ++i) r.v[i] = bf16_to_float(load_u16(p + 2 * i));
  return r;
}
#endif

#endif

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
