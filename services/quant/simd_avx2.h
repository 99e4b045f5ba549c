#pragma once
// simd.h with AVX2, FMA and F16C.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata::quant::STRATA_KERNEL_VARIANT {

using Bytes32 = __m256i;
// Its own type, so that adding integers and adding bytes cannot be mixed up.
struct Ints8 {
  __m256i v;
};
using Floats8 = __m256;
// Sums over the first and the last 16 values of a unit, one per row.
struct HalfDots {
  Ints8 first, last;
};

// ---- bytes

inline Bytes32 load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i_u*>(p)); }
inline void store32(Bytes32 a, int8_t* p) { _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(p), a); }
inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i_u*>(p)); }

// (byte >> shift) & mask: a 16-bit shift, whose stray bits the mask takes away (mask < 256 >> shift).
inline Bytes32 bits(Bytes32 a, int shift, uint8_t mask) {
  return _mm256_and_si256(_mm256_srli_epi16(a, shift), _mm256_set1_epi8(static_cast<char>(mask)));
}
// byte << shift, where no bit is lost
inline Bytes32 shift_up(Bytes32 a, int shift) { return _mm256_slli_epi16(a, shift); }

// 16 bytes -> their low nibbles, then their high nibbles.
inline Bytes32 nibbles(const uint8_t* p) {
  const __m128i packed = load16(p);
  return bits(_mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1), 0, 15);
}
// 2 x 8 bytes -> low and high nibbles of the first 8, low and high nibbles of the last 8.
inline Bytes32 nibbles_by_8(const uint8_t* p) { return _mm256_permute4x64_epi64(nibbles(p), 0b11'01'10'00); }
inline Bytes32 either(Bytes32 a, Bytes32 b) { return _mm256_or_si256(a, b); }

// bit i of `mask` set -> byte i is 0xff, else 0
inline Bytes32 spread_bits(uint32_t mask) {
  const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2,
                                           2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(mask)), byte_of);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
}
// bit i of `mask` set -> byte i is `value`, else 0
inline Bytes32 spread(uint32_t mask, uint8_t value) {
  return _mm256_and_si256(spread_bits(mask), _mm256_set1_epi8(static_cast<char>(value)));
}
// bit i of `mask` set -> byte i changes its sign
inline Bytes32 negate_where(Bytes32 a, uint32_t mask) {
  const __m256i negative = spread_bits(mask);
  return _mm256_sub_epi8(_mm256_xor_si256(a, negative), negative);
}
// 8 bytes -> four 2-bit values each, lowest bits first
inline Bytes32 crumbs(const uint8_t* p) {
  const __m256i four_times = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5,
                                              5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  const __m256i bytes = _mm256_shuffle_epi8(
      _mm256_broadcastsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p))), four_times);
  // A 32-bit number holds the byte four times: bring value j down in copy j.
  const __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi32(0x00'03'00'03));
  const __m256i odd = _mm256_and_si256(bytes, _mm256_set1_epi32(0x0c'00'0c'00));
  const __m256i low = _mm256_or_si256(even, _mm256_srli_epi16(odd, 2));
  const __m256i shifted = _mm256_srli_epi16(bytes, 4);
  const __m256i high =
      _mm256_or_si256(_mm256_and_si256(shifted, _mm256_set1_epi32(0x00'03'00'03)),
                      _mm256_srli_epi16(_mm256_and_si256(shifted, _mm256_set1_epi32(0x0c'00'0c'00)), 2));
  return _mm256_blend_epi16(low, high, 0b10101010);
}
// table[byte] for bytes below 16
inline Bytes32 lookup(const int8_t (&table)[16], Bytes32 index) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(table)), index);
}

// Four words of 8 bytes, eight words of 4 bytes.
template <class Entries>
inline Bytes32 entries8(const Entries& entries, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
  const auto pair = [&](std::size_t low, std::size_t high) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(&entries[low]));
    return _mm_castps_si128(
        _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(&entries[high])));
  };
  return _mm256_set_m128i(pair(c, d), pair(a, b));
}
template <class Entries>
inline Bytes32 entries4(const Entries& entries, const uint32_t (&index)[8]) {
  const auto four = [&](int first) {
    __m128i words = _mm_cvtsi32_si128(static_cast<int>(entries[index[first]]));
    words = _mm_insert_epi32(words, static_cast<int>(entries[index[first + 1]]), 1);
    words = _mm_insert_epi32(words, static_cast<int>(entries[index[first + 2]]), 2);
    return _mm_insert_epi32(words, static_cast<int>(entries[index[first + 3]]), 3);
  };
  return _mm256_set_m128i(four(4), four(0));
}

// ---- 8 rows

// Eight sums of four neighbouring products. Signed weights: |w| is taken as unsigned (128 fits) and its sign
// moved to x.
template <bool kSigned>
inline __m256i dot4(__m256i w, __m256i x) {
  const __m256i magnitude = kSigned ? _mm256_abs_epi8(w) : w;
  const __m256i signed_x = kSigned ? _mm256_sign_epi8(x, w) : x;
  // A pair is at most 2 * 128 * 127 < 2^15, so nothing saturates.
  return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), _mm256_set1_epi16(1));
}
// Weights of 8 rows, signed or 0..63, with the activations of one token; |activation| <= 127.
template <bool kSigned>
inline HalfDots dots(const Bytes32 (&w)[8], Bytes32 x) {
  // Transposes and adds inside 128 bits: [a02 b02 a13 b13], then [a b c d]. (Two shuffles and an addition are
  // what hadd does, in twice the time.)
  const auto two = [&](int row) {
    const __m256i a = dot4<kSigned>(w[row], x), b = dot4<kSigned>(w[row + 1], x);
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  };
  const auto four = [&](int row) {
    const __m256i ab = two(row), cd = two(row + 2);
    return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  };
  const __m256i low = four(0), high = four(4);
  return {{_mm256_permute2x128_si256(low, high, 0x20)}, {_mm256_permute2x128_si256(low, high, 0x31)}};
}
// Sum of the first 16 signed bytes.
inline int32_t sum_first16(Bytes32 x) {
  const __m128i quads =
      _mm_madd_epi16(_mm_maddubs_epi16(_mm_set1_epi8(1), _mm256_castsi256_si128(x)), _mm_set1_epi16(1));
  const __m128i twos = _mm_add_epi32(quads, _mm_shuffle_epi32(quads, 0b01'00'11'10));
  return _mm_cvtsi128_si32(_mm_add_epi32(twos, _mm_shuffle_epi32(twos, 0b10'11'00'01)));
}

// 8 x 8 bytes: byte c of rows[r] -> byte r of column c.
inline void transpose_bytes(const uint64_t (&rows)[8], int8_t* columns) {
  const auto pair = [&](int row) {
    return _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(&rows[row])),
                             _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(&rows[row + 1])));
  };
  const __m128i r01 = pair(0), r23 = pair(2), r45 = pair(4), r67 = pair(6);
  const __m128i low0 = _mm_unpacklo_epi16(r01, r23),
                high0 = _mm_unpackhi_epi16(r01, r23);  // columns 0-3, 4-7 of rows 0-3
  const __m128i low4 = _mm_unpacklo_epi16(r45, r67), high4 = _mm_unpackhi_epi16(r45, r67);  // of rows 4-7
  auto* out = reinterpret_cast<__m128i_u*>(columns);
  _mm_storeu_si128(out + 0, _mm_unpacklo_epi32(low0, low4));
  _mm_storeu_si128(out + 1, _mm_unpackhi_epi32(low0, low4));
  _mm_storeu_si128(out + 2, _mm_unpacklo_epi32(high0, high4));
  _mm_storeu_si128(out + 3, _mm_unpackhi_epi32(high0, high4));
}
inline Ints8 signed_bytes(const int8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(p)))};
}
inline Ints8 spread_int(int32_t a) { return {_mm256_set1_epi32(a)}; }
inline Ints8 plus(Ints8 a, Ints8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Ints8 minus(Ints8 a, Ints8 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline Ints8 times(Ints8 a, Ints8 b) { return {_mm256_mullo_epi32(a.v, b.v)}; }

// ---- floats

inline Floats8 to_floats(Ints8 a) { return _mm256_cvtepi32_ps(a.v); }
inline Floats8 zero_floats() { return _mm256_setzero_ps(); }
inline Floats8 spread_float(float a) { return _mm256_set1_ps(a); }
inline Floats8 load_floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
inline void store_floats(Floats8 a, float* p) { _mm256_storeu_ps(p, a); }
inline Floats8 times(Floats8 a, Floats8 b) { return _mm256_mul_ps(a, b); }
inline Floats8 plus(Floats8 a, Floats8 b) { return _mm256_add_ps(a, b); }
inline Floats8 negative(Floats8 a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
inline Floats8 fma8(Floats8 a, Floats8 b, Floats8 c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats8 halfs_to_floats(const uint16_t (&h)[8]) { return _mm256_cvtph_ps(load16(h)); }

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
