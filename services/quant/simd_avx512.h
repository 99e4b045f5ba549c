#pragma once
// What the AVX-512 kernels are written in (F, BW, DQ, VL, VNNI, VBMI and GFNI: Ice Lake, Sapphire Rapids, Zen
// 4 and later).
//
// Everything is "by lanes": one 32-bit lane of a register for each of 16 neighbouring weight rows. Bytes of
// the rows are brought into that form once, while they are still packed (load_strip); from there on no sum
// ever crosses a lane.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "services/quant/unrolled.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// Dot products take any unsigned bytes as weights.
inline constexpr bool kWideDots = true;

using Vec = __m512i;    // 16 x 32 bits, or 64 bytes
using Floats = __m512;  // 16 float32
inline constexpr int kRows = 16;

// The same place in 16 rows.
struct Rows {
  const uint8_t* row0;
  std::size_t stride;  // bytes from row to row
  Vec strides;         // lane r: r * stride

  Rows(const uint8_t* first_row, std::size_t row_bytes)
      : row0(first_row),
        stride(row_bytes),
        strides(_mm512_mullo_epi32(_mm512_set1_epi32(static_cast<int>(row_bytes)),
                                   _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))) {
  }
  Rows plus(std::size_t bytes) const {
    Rows moved = *this;
    moved.row0 += bytes;
    return moved;
  }
};

// 16 neighbouring bytes of each row: word[i] has bytes 4i..4i+3.
struct Strip {
  Vec word[4];
};

inline Strip load_strip(const Rows& rows, int offset) {
  const auto load = [&](std::size_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(rows.row0 + offset + row * rows.stride));
  };
  const auto every_fourth_from = [&](std::size_t row) {
    Vec v = _mm512_castsi128_si512(load(row));
    v = _mm512_inserti32x4(v, load(row + 4), 1);
    v = _mm512_inserti32x4(v, load(row + 8), 2);
    return _mm512_inserti32x4(v, load(row + 12), 3);
  };
  // A 4 x 4 transposition in each 128 bits, which hold four neighbouring rows.
  const Vec a = every_fourth_from(0), b = every_fourth_from(1), c = every_fourth_from(2),
            d = every_fourth_from(3);
  const Vec ab01 = _mm512_unpacklo_epi32(a, b), ab23 = _mm512_unpackhi_epi32(a, b);
  const Vec cd01 = _mm512_unpacklo_epi32(c, d), cd23 = _mm512_unpackhi_epi32(c, d);
  return {{_mm512_unpacklo_epi64(ab01, cd01), _mm512_unpackhi_epi64(ab01, cd01),
           _mm512_unpacklo_epi64(ab23, cd23), _mm512_unpackhi_epi64(ab23, cd23)}};
}

// 4 bytes of each row: for the few that no strip covers.
inline Vec load_word(const Rows& rows, int offset) {
  return _mm512_i32gather_epi32(rows.strides, rows.row0 + offset, 1);
}

inline Vec spread(uint32_t pattern) { return _mm512_set1_epi32(static_cast<int>(pattern)); }
inline Vec zero() { return _mm512_setzero_si512(); }
inline Vec and_(Vec a, Vec b) { return _mm512_and_si512(a, b); }
inline Vec or_(Vec a, Vec b) { return _mm512_or_si512(a, b); }
inline Vec xor_(Vec a, Vec b) { return _mm512_xor_si512(a, b); }
inline Vec minus32(Vec a, Vec b) { return _mm512_sub_epi32(a, b); }
// a where mask is set, else b
inline Vec select(Vec mask, Vec a, Vec b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }
// (a & mask_a) | (b & mask_b), for masks without common bits
inline Vec join(Vec a, uint32_t mask_a, Vec b, uint32_t mask_b) {
  return and_(select(spread(mask_a), a, b), spread(mask_a | mask_b));
}
// Shifts of whole lanes, and of 16-bit groups: for fields of bytes, whose neighbours' bits a mask or a table
// lookup drops. Negative: to the left.
template <int kRight>
inline Vec shift32(Vec a) {
  if constexpr (kRight > 0) return _mm512_srli_epi32(a, kRight);
  if constexpr (kRight < 0) return _mm512_slli_epi32(a, -kRight);
  return a;
}
template <int kRight>
inline Vec shift16(Vec a) {
  if constexpr (kRight > 0) return _mm512_srli_epi16(a, kRight);
  if constexpr (kRight < 0) return _mm512_slli_epi16(a, -kRight);
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
  return kRight == 0 ? a : _mm512_srai_epi32(a, kRight);
}
// Pairs of 16-bit integers: the lower one of `low` and the higher one of `high`; bytes kLow and kHigh of each
// lane; products summed to 32 bits.
inline Vec low_and_high(Vec low, Vec high) { return _mm512_mask_mov_epi16(low, 0xaaaaaaaau, high); }
template <int kLow, int kHigh>
inline Vec byte_pair(Vec a) {
  constexpr auto kPair = [](int lane) {
    return static_cast<int>(0x80008000u |
                            static_cast<uint32_t>((4 * lane + kHigh) << 16 | (4 * lane + kLow)));
  };
  return _mm512_shuffle_epi8(a,
                             _mm512_broadcast_i32x4(_mm_setr_epi32(kPair(0), kPair(1), kPair(2), kPair(3))));
}
inline Vec multiply_add_pairs(Vec a, Vec b) { return _mm512_madd_epi16(a, b); }
// The byte that begins at bit kStart of each lane, as a signed number.
template <int kStart>
inline Vec signed_byte(Vec a) {
  return _mm512_srai_epi32(shift32<kStart - 24>(a), 24);
}

inline Floats to_floats(Vec ints) { return _mm512_cvtepi32_ps(ints); }
inline Floats zero_lanes() { return _mm512_setzero_ps(); }
inline Floats spread_lanes(float a) { return _mm512_set1_ps(a); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
// Stores lanes first .. 15 at p + first .. p + 15.
inline void store_from(float* p, uint32_t first, Floats a) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>(0xffffu << first), a);
}
// The binary16 number in the lower half of each lane.
inline Floats low_half(Vec a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
inline Floats high_half(Vec a) { return low_half(_mm512_srli_epi32(a, 16)); }
inline Floats negative(Floats a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }

// 2^(e - 128): an exponent field of e - 1, or for e < 2 a subnormal number.
inline Floats e8m0_lanes(Vec e) {
  const Vec normal = _mm512_slli_epi32(minus32(e, spread(1)), 23);
  const Vec subnormal = _mm512_sllv_epi32(spread(0x200000), e);
  return _mm512_castsi512_ps(
      _mm512_mask_blend_epi32(_mm512_cmplt_epu32_mask(e, spread(2)), normal, subnormal));
}
// Half of the e4m3 number b: read as binary16 its seven bits give it 2^-7 fold, subnormals included. 0x7f
// means 0 where bit 7 is clear.
inline Floats half_e4m3_lanes(Vec b) {
  const Floats value = low_half(_mm512_slli_epi32(and_(b, spread(127)), 7));
  return _mm512_maskz_mul_ps(_mm512_cmpneq_epi32_mask(b, spread(127)), value, spread_lanes(128));
}

// 64 bytes that a vector is loaded from.
struct alignas(64) ByteTable {
  uint8_t byte[64];
  Vec load() const { return _mm512_load_si512(byte); }
};
// Byte i of the table is made by make(i).
template <class Make>
constexpr ByteTable make_table64(Make make) {
  ByteTable t{};
  for (int i = 0; i < 64; ++i) t.byte[i] = static_cast<uint8_t>(make(i));
  return t;
}
// table[index & 63] for every byte
inline Vec lookup64(const ByteTable& table, Vec index) {
  return _mm512_permutexvar_epi8(index, table.load());
}
// 16 values for the nibbles of bytes: four copies, which ignore what is above the nibble.
using NibbleTable = ByteTable;
constexpr NibbleTable nibble_table(const int (&values)[16], int offset) {
  return make_table64([&](int i) { return values[i % 16] + offset; });
}
inline Vec lookup_nibbles(const NibbleTable& table, Vec index) { return lookup64(table, index); }
// table[index & 127] for every byte
inline Vec lookup128(const ByteTable (&table)[2], Vec index) {
  return _mm512_permutex2var_epi8(table[0].load(), index, table[1].load());
}

// For each byte of a lane, the 8 bits of that lane from bit starts[byte] on. (The instruction works on pairs
// of lanes: bits above the lane's end come from the other one.)
constexpr ByteTable lane_bit_starts(int b0, int b1, int b2, int b3) {
  const int starts[4] = {b0, b1, b2, b3};
  return make_table64([&](int i) { return (starts[i % 4] + (i % 8 < 4 ? 0 : 32)) & 63; });
}
inline Vec bits_from(const ByteTable& starts, Vec a) {
  return _mm512_multishift_epi64_epi8(starts.load(), a);
}

// Bits 4j..4j+3 of each lane become bit 4 of the bytes of w[j].
inline void add_fifth_bits(Vec plane, Vec (&w)[8]) {
  static constexpr auto kStarts = [] {
    struct {
      ByteTable of[8];
    } t{};
    for (int j = 0; j < 8; ++j) t.of[j] = lane_bit_starts(4 * j - 4, 4 * j - 3, 4 * j - 2, 4 * j - 1);
    return t;
  }();
  for (int j = 0; j < 8; ++j) w[j] = or_(w[j], and_(bits_from(kStarts.of[j], plane), spread(0x10101010)));
}

using Int32MayAlias [[gnu::may_alias]] = int32_t;

// Four bytes at p in every lane.
inline Vec spread_four(const void* p) { return _mm512_set1_epi32(*static_cast<const Int32MayAlias*>(p)); }
// sum += four products of unsigned bytes of `w` and the signed bytes at `x`, by lanes; exact. The memory
// operand spreads the bytes by itself, which the compiler (GCC 12) leaves to an instruction of its own: 0.84
// instead of 0.63 cycles.
inline Vec add_dot4(Vec sum, Vec w, const int8_t* x) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Int32MayAlias*>(x)));
  return sum;
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
