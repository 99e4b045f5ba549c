#pragma once
// The widest vector of float32 of a variant: what float dot products are made of (product_f32.h).
//
//   FloatVec             kFloatWidth neighbouring values or lanes
//   kFloatAccumulators   how many of them registers hold beside what is loaded

#include <cstddef>
#include <cstdint>

#include "services/quant/simd.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

#ifdef __AVX512F__

using FloatVec = __m512;
inline constexpr uint32_t kFloatWidth = 16;
inline constexpr uint32_t kFloatAccumulators = 16;

inline FloatVec zero_vec() { return _mm512_setzero_ps(); }
inline FloatVec load_vec(const void* p) { return _mm512_loadu_ps(p); }
inline void store_vec(FloatVec a, float* p) { _mm512_storeu_ps(p, a); }
inline FloatVec plus(FloatVec a, FloatVec b) { return _mm512_add_ps(a, b); }
inline FloatVec fma_vec(FloatVec a, FloatVec b, FloatVec c) { return _mm512_fmadd_ps(a, b, c); }
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
