#pragma once
// The vector operations of the lane kernels (product_lanes.h) with AVX2: a 32-bit lane of a register for each
// of 8 neighbouring weight rows. Bytes of the rows are brought into that form once, while they are still
// packed (load_strip); from there on no sum ever crosses a lane.
//
// With AVX-VNNI, four byte products are summed to 32 bits in one instruction and weights may be any unsigned
// bytes. Without, pairs of products are summed to 16 bits: as many of those as cannot overflow are added
// before they are widened, and weights beyond 127 have to be signed (kWideDots).

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "services/quant/unrolled.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using Vec = __m256i;    // 8 x 32 bits, or 32 bytes
using Floats = __m256;  // 8 float32
inline constexpr int kRows = 8;

#ifdef __AVXVNNI__
inline constexpr bool kWideDots = true;
#else
inline constexpr bool kWideDots = false;
#endif

// The same place in 8 rows.
struct Rows {
  const uint8_t* row0;
  std::size_t stride;  // bytes from row to row

  Rows(const uint8_t* first_row, std::size_t row_bytes) : row0(first_row), stride(row_bytes) {}
  const uint8_t* at(std::size_t row, int offset) const { return row0 + row * stride + offset; }
};

// 16 neighbouring bytes of each row: word[i] has bytes 4i..4i+3.
struct Strip {
  Vec word[4];
};

inline Strip load_strip(const Rows& rows, int offset) {
  const auto load = [&](std::size_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(rows.at(row, offset)));
  };
  const auto pair = [&](std::size_t row) { return _mm256_set_m128i(load(row + 4), load(row)); };
  // A 4 x 4 transposition in each 128 bits, which hold four neighbouring rows.
  const Vec a = pair(0), b = pair(1), c = pair(2), d = pair(3);
  const Vec ab01 = _mm256_unpacklo_epi32(a, b), ab23 = _mm256_unpackhi_epi32(a, b);
  const Vec cd01 = _mm256_unpacklo_epi32(c, d), cd23 = _mm256_unpackhi_epi32(c, d);
  return {{_mm256_unpacklo_epi64(ab01, cd01), _mm256_unpackhi_epi64(ab01, cd01),
           _mm256_unpacklo_epi64(ab23, cd23), _mm256_unpackhi_epi64(ab23, cd23)}};
}

// Eight words of 32 bits; word_at(row) says where one is.
template <class WordAt>
inline Vec load_words(WordAt word_at) {
  const auto load = [&](std::size_t row) { return _mm_loadu_si32(word_at(row)); };
  const auto four = [&](std::size_t row) {
    return _mm_unpacklo_epi64(_mm_unpacklo_epi32(load(row), load(row + 1)),
                              _mm_unpacklo_epi32(load(row + 2), load(row + 3)));
  };
  return _mm256_set_m128i(four(4), four(0));
}
// 4 bytes of each row: for the few that no strip covers.
inline Vec load_word(const Rows& rows, int offset) {
  return load_words([&](std::size_t row) { return rows.at(row, offset); });
}

inline Vec spread(uint32_t pattern) { return _mm256_set1_epi32(static_cast<int>(pattern)); }
// Four bytes at p in every lane.
inline Vec spread_four(const void* p) {
  uint32_t bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  return spread(bytes);
}
inline Vec zero() { return _mm256_setzero_si256(); }
inline Vec and_(Vec a, Vec b) { return _mm256_and_si256(a, b); }
inline Vec or_(Vec a, Vec b) { return _mm256_or_si256(a, b); }
inline Vec xor_(Vec a, Vec b) { return _mm256_xor_si256(a, b); }
// (a & mask_a) | (b & mask_b)
inline Vec join(Vec a, uint32_t mask_a, Vec b, uint32_t mask_b) {
  return or_(and_(a, spread(mask_a)), and_(b, spread(mask_b)));
}
inline Vec minus32(Vec a, Vec b) { return _mm256_sub_epi32(a, b); }
inline Vec plus32(Vec a, Vec b) { return _mm256_add_epi32(a, b); }
inline Vec plus16(Vec a, Vec b) { return _mm256_add_epi16(a, b); }
// Shifts of whole lanes, and of 16-bit groups: for fields of bytes, whose neighbours' bits a mask or a table
// lookup drops. Negative: to the left.
template <int kRight>
inline Vec shift32(Vec a) {
  if constexpr (kRight > 0) return _mm256_srli_epi32(a, kRight);
  if constexpr (kRight < 0) return _mm256_slli_epi32(a, -kRight);
  return a;
}
template <int kRight>
inline Vec shift16(Vec a) {
  if constexpr (kRight > 0) return _mm256_srli_epi16(a, kRight);
  if constexpr (kRight < 0) return _mm256_slli_epi16(a, -kRight);
  return a;
}
// (lane >> kShift) & mask
template <int kShift>
inline Vec field(Vec a, uint32_t mask) {
  return and_(shift32<kShift>(a), spread(mask));
}
// Of 32-bit lanes, sign kept.
template <int kRight>
inline Vec signed_shift(Vec a) {
  return kRight == 0 ? a : _mm256_srai_epi32(a, kRight);
}
// Pairs of 16-bit integers: the lower one of `low` and the higher one of `high`; bytes kLow and kHigh of each
// lane; products summed to 32 bits.
inline Vec low_and_high(Vec low, Vec high) { return _mm256_blend_epi16(low, high, 0xaa); }
template <int kLow, int kHigh>
inline Vec byte_pair(Vec a) {
  constexpr auto kPair = [](int lane) {
    return static_cast<int>(0x80008000u |
                            static_cast<uint32_t>((4 * lane + kHigh) << 16 | (4 * lane + kLow)));
  };
  return _mm256_shuffle_epi8(
      a, _mm256_broadcastsi128_si256(_mm_setr_epi32(kPair(0), kPair(1), kPair(2), kPair(3))));
}
inline Vec multiply_add_pairs(Vec a, Vec b) { return _mm256_madd_epi16(a, b); }
// The byte that begins at bit kStart of each lane, as a signed number.
template <int kStart>
inline Vec signed_byte(Vec a) {
  return _mm256_srai_epi32(shift32<kStart - 24>(a), 24);
}

inline Floats to_floats(Vec ints) { return _mm256_cvtepi32_ps(ints); }
inline Floats zero_lanes() { return _mm256_setzero_ps(); }
inline Floats spread_lanes(float a) { return _mm256_set1_ps(a); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats negative(Floats a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
// Stores lanes first .. 7 at p + first .. p + 7.
inline void store_from(float* p, uint32_t first, Floats a) {
  if (first == 0) return _mm256_storeu_ps(p, a);
  alignas(32) float lane[8];
  _mm256_store_ps(lane, a);
  for (uint32_t i = first; i < 8; ++i) p[i] = lane[i];
}

// The binary16 number that begins with byte kByte of each lane.
template <int kByte>
inline Floats half_at(Vec a) {
  const __m256i bytes =
      _mm256_setr_epi8(kByte, kByte + 1, kByte + 4, kByte + 5, kByte + 8, kByte + 9, kByte + 12, kByte + 13,
                       -1, -1, -1, -1, -1, -1, -1, -1, kByte, kByte + 1, kByte + 4, kByte + 5, kByte + 8,
                       kByte + 9, kByte + 12, kByte + 13, -1, -1, -1, -1, -1, -1, -1, -1);
  const Vec packed = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, bytes), 0b1000);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
inline Floats low_half(Vec a) { return half_at<0>(a); }
inline Floats high_half(Vec a) { return half_at<2>(a); }

// 2^(e - 128): an exponent field of e - 1, or for e < 2 a subnormal number.
inline Floats e8m0_lanes(Vec e) {
  const Vec normal = _mm256_slli_epi32(minus32(e, spread(1)), 23);
  const Vec subnormal = _mm256_sllv_epi32(spread(0x200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(spread(2), e)));
}
// Half of the e4m3 number b: read as binary16 its seven bits give it 2^-7 fold, subnormals included. 0x7f
// means 0 where bit 7 is clear.
inline Floats half_e4m3_lanes(Vec b) {
  const Floats value = mul(low_half(shift32<-7>(and_(b, spread(127)))), spread_lanes(128.0f));
  return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(b, spread(127))), value);
}

// 16 values for the nibbles of bytes.
struct alignas(16) NibbleTable {
  uint8_t byte[16];
};
constexpr NibbleTable nibble_table(const int (&values)[16], int offset) {
  NibbleTable t{};
  for (int i = 0; i < 16; ++i) t.byte[i] = static_cast<uint8_t>(values[i] + offset);
  return t;
}
// table[byte & 15], for bytes below 128
inline Vec lookup_low_nibbles(const NibbleTable& table, Vec index) {
  const __m128i t = _mm_load_si128(reinterpret_cast<const __m128i*>(table.byte));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), index);
}
// table[byte & 15]
inline Vec lookup_nibbles(const NibbleTable& table, Vec index) {
  return lookup_low_nibbles(table, and_(index, spread(0x0f0f0f0f)));
}

// Byte kByte of each lane, four times.
template <int kByte>
inline Vec four_times(Vec a) {
  return _mm256_shuffle_epi8(
      a, _mm256_setr_epi8(kByte, kByte, kByte, kByte, kByte + 4, kByte + 4, kByte + 4, kByte + 4, kByte + 8,
                          kByte + 8, kByte + 8, kByte + 8, kByte + 12, kByte + 12, kByte + 12, kByte + 12,
                          kByte, kByte, kByte, kByte, kByte + 4, kByte + 4, kByte + 4, kByte + 4, kByte + 8,
                          kByte + 8, kByte + 8, kByte + 8, kByte + 12, kByte + 12, kByte + 12, kByte + 12));
}
// 0xff in the bytes where `a` has all the bits of `bits`.
inline Vec bytes_with(Vec a, uint32_t bits) { return _mm256_cmpeq_epi8(and_(a, spread(bits)), spread(bits)); }
// Bits 4j..4j+3 of each lane become bit 4 of the bytes of w[j].
inline void add_fifth_bits(Vec plane, Vec (&w)[8]) {
  const Vec bytes[4] = {four_times<0>(plane), four_times<1>(plane), four_times<2>(plane),
                        four_times<3>(plane)};
  for (int j = 0; j < 8; ++j) {
    const Vec set = bytes_with(bytes[j / 2], j % 2 == 0 ? 0x08040201 : 0x80402010);
    w[j] = or_(w[j], and_(set, spread(0x10101010)));
  }
}

#ifdef __AVXVNNI__
// sum += four products of unsigned bytes of `w` and the signed bytes at `x`, by lanes; exact.
inline Vec add_dot4(Vec sum, Vec w, const int8_t* x) {
  return _mm256_dpbusd_avx_epi32(sum, w, spread_four(x));
}
#else
// Products of unsigned bytes of `w` and the four signed bytes at `x`, two summed to 16 bits.
inline Vec byte_products(Vec w, const int8_t* x) { return _mm256_maddubs_epi16(w, spread_four(x)); }
#endif

// Here and now: without it the compiler puts off additions until the products of all tokens wait for them, in
// memory.
inline void settle(Vec& a) { asm("" : "+x"(a)); }

// sum[t] += the products of w[0..kCount-1] with four(t, j), four activations of token t in every lane; by
// lanes. kMax: the largest weight, or 0 for signed ones. |x| <= 127.
template <int kMax, int kCount, int kTokens, class Four>
STRATA_LANES_INLINE void add_dots(Vec (&sum)[kTokens], const Vec* w, Four four) {
#ifdef __AVXVNNI__
  unrolled<kCount>([&](auto j) STRATA_LANES_LAMBDA {
    unrolled<kTokens>(
        [&](auto t) STRATA_LANES_LAMBDA { sum[t] = _mm256_dpbusd_avx_epi32(sum[t], w[j], four(t, j)); });
  });
#else
  constexpr int kPair = 2 * 127 * kMax;  // the largest sum of two products
  static_assert(kPair < 32768);
  constexpr int kFit = kMax == 0 ? 1 : 32767 / kPair;
  constexpr int kTogether = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  Vec pairs[kTokens];
  unrolled<kCount>([&](auto j) STRATA_LANES_LAMBDA {
    const Vec magnitude = kMax == 0 ? _mm256_abs_epi8(w[j]) : w[j];
    unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA {
      const Vec x = kMax == 0 ? _mm256_sign_epi8(four(t, j), w[j]) : four(t, j);
      const Vec products = _mm256_maddubs_epi16(magnitude, x);
      pairs[t] = j % kTogether == 0 ? products : _mm256_add_epi16(pairs[t], products);
      if constexpr (kTogether > 1) settle(pairs[t]);
      if constexpr (j % kTogether == kTogether - 1 || j == kCount - 1)
        sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs[t], _mm256_set1_epi16(1)));
    });
  });
#endif
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
