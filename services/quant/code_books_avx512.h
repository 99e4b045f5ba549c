#pragma once
// The code book types by lanes (formats_lanes.h).
//
// An entry's code (code_books.h) is found by its index: in tables that registers hold, 128 bytes at a time,
// or by gathering from memory. Codes and signs then become bytes through a table of 64.

#include "services/quant/code_books.h"
#include "services/quant/formats_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using ScalePer32Minus = UnitShape<32, MinimumKind::kNone, false, true>;
using ScalePer16Minus = UnitShape<16, MinimumKind::kNone, false, true>;

// ---- codes of entries

// Indices of entries, a byte each and what does not fit in one: bit i of all of them is bit[i - 7], from bit
// 7 on.
template <std::size_t kEntries>
struct EntryIndex {
  static constexpr int kHighBits = __builtin_ctzll(kEntries) - 7;
  Vec low;
  __mmask64 bit[kHighBits];
};

// Low or high byte of each entry's code, 128 in a pair of registers.
template <std::size_t kEntries>
struct CodeBytes {
  ByteTable of[kEntries / 128][2];
};
template <int kShift, std::size_t kEntries>
constexpr CodeBytes<kEntries> code_bytes(const uint16_t (&codes)[kEntries]) {
  CodeBytes<kEntries> t{};
  for (std::size_t i = 0; i < kEntries; ++i)
    t.of[i / 128][i / 64 % 2].byte[i % 64] = static_cast<uint8_t>(codes[i] >> kShift);
  return t;
}
inline constexpr auto kIq2XxsLow = code_bytes<0>(kIq2XxsCodes), kIq2XxsHigh = code_bytes<8>(kIq2XxsCodes);
inline constexpr auto kIq2XsLow = code_bytes<0>(kIq2XsCodes), kIq2XsHigh = code_bytes<8>(kIq2XsCodes);
inline constexpr auto kIq3XxsLow = code_bytes<0>(kIq3XxsCodes), kIq3XxsHigh = code_bytes<8>(kIq3XxsCodes);
inline constexpr auto kIq3SLow = code_bytes<0>(kIq3SCodes), kIq3SHigh = code_bytes<8>(kIq3SCodes);

template <std::size_t kEntries, std::size_t first = 0, std::size_t count = kEntries / 128>
inline Vec lookup(const CodeBytes<kEntries>& table, const EntryIndex<kEntries>& index) {
  if constexpr (count == 1) {
    return lookup128(table.of[first], index.low);
  } else {
    const Vec low = lookup<kEntries, first, count / 2>(table, index);
    const Vec high = lookup<kEntries, first + count / 2, count / 2>(table, index);
    return _mm512_mask_blend_epi8(index.bit[__builtin_ctzll(count) - 1], low, high);
  }
}

// Entries to be gathered, 32 bits each: byte j has the codes of values j and j + 4, from bits kBit and
// kOtherBit on.
template <std::size_t kEntries>
struct CodeWords {
  uint32_t word[kEntries];
};
template <int kBit, int kOtherBit, std::size_t kEntries>
constexpr CodeWords<kEntries> code_words(const uint16_t (&codes)[kEntries]) {
  CodeWords<kEntries> t{};
  for (std::size_t i = 0; i < kEntries; ++i) {
    for (int value = 0; value < 8; ++value) {
      const uint32_t code = (codes[i] >> (2 * value)) & 3u;
      t.word[i] |= code << (8 * (value % 4) + (value < 4 ? kBit : kOtherBit));
    }
  }
  return t;
}
inline constexpr auto kIq2SWords = code_words<0, 4>(kIq2SCodes);
inline constexpr auto kIq1Words = code_words<3, 5>(kIq1Codes);

// The words of a unit's four entries. Indices: the bytes of `low`, with kWidth bits of `tops` above each,
// entry e's from bit kFirstBit + e * kStep on.
template <int kFirstBit, int kStep, int kWidth, std::size_t kEntries>
inline void gather_entries(const CodeWords<kEntries>& words, Vec low, Vec tops, Vec (&entry)[4]) {
  static constexpr ByteTable kStarts =
      lane_bit_starts(kFirstBit, kFirstBit + kStep, kFirstBit + 2 * kStep, kFirstBit + 3 * kStep);
  const Vec high = and_(bits_from(kStarts, tops), spread(((1u << kWidth) - 1) * 0x01010101u));
  const auto gather = [&](Vec index) {
    return _mm512_castsi512_ps(_mm512_i32gather_epi32(index, words.word, 4));
  };
  // Of rows 0 and 1 of each four, then 2 and 3: 16-bit indices of entries 0 and 1 in one lane, of 2 and 3 in
  // the next.
  const Vec first = _mm512_unpacklo_epi8(low, high), last = _mm512_unpackhi_epi8(low, high);
  const __m512 first02 = gather(field<0>(first, 0xffff)), first13 = gather(_mm512_srli_epi32(first, 16));
  const __m512 last02 = gather(field<0>(last, 0xffff)), last13 = gather(_mm512_srli_epi32(last, 16));
  entry[0] = _mm512_castps_si512(_mm512_shuffle_ps(first02, last02, 0b10'00'10'00));
  entry[1] = _mm512_castps_si512(_mm512_shuffle_ps(first13, last13, 0b10'00'10'00));
  entry[2] = _mm512_castps_si512(_mm512_shuffle_ps(first02, last02, 0b11'01'11'01));
  entry[3] = _mm512_castps_si512(_mm512_shuffle_ps(first13, last13, 0b11'01'11'01));
}

// The codes of four entries of 8 values, in halves of lanes: of entries 0 and 1, of 2 and 3.
struct CodePairs {
  Vec first, last;
};
// From low and high bytes of the codes of entries 0, 2, 1, 3.
inline CodePairs interleave(Vec low, Vec high) {
  const Vec even = spread(0x00ff00ff);
  return {select(even, low, _mm512_slli_epi32(high, 8)), select(even, _mm512_srli_epi32(low, 8), high)};
}
inline Vec swap_middle_bytes(Vec a) {
  static constexpr ByteTable kOrder = make_table64([](int i) {
    constexpr int kFrom[4] = {0, 2, 1, 3};
    return i / 4 % 4 * 4 + kFrom[i % 4];
  });
  return _mm512_shuffle_epi8(a, kOrder.load());
}
template <std::size_t kEntries>
inline EntryIndex<kEntries> index_of_bytes(Vec low, Vec tops) {
  EntryIndex<kEntries> index{low, {_mm512_movepi8_mask(low)}};
  for (int i = 1; i < EntryIndex<kEntries>::kHighBits; ++i)
    index.bit[i] = _mm512_test_epi8_mask(tops, _mm512_set1_epi8(static_cast<char>(1 << (i - 1))));
  return index;
}

// ---- codes and signs to bytes

// Signs of four groups of 8 values, a byte each, from 7-bit codes in the low bits of bytes, or one bit
// higher: bit 7 makes the number of signs even.
inline constexpr long long kParityOfBits0To6 = 0x0102040810204000 | 0x7f;
inline constexpr long long kParityOfBits1To7 = 0x0204081020408000 | 0xfe;
template <long long kMatrix>
inline Vec even_signs(Vec codes) {
  return _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(kMatrix), 0);
}

// 8 levels to a byte: 2-bit codes and a third bit that tells two tables apart.
template <class Value>
constexpr ByteTable two_bit_table(Value value) {
  return make_table64([&](int i) { return value(i & 3, (i & 4) != 0); });
}
inline constexpr int kIq2Offset = 43;
inline constexpr ByteTable kIq2Table = two_bit_table([](int code, bool minus) {
  const int level = code < 3 ? kIq2Levels[code] : 0;
  return kIq2Offset + (minus ? -level : level);
});
inline constexpr int kIq3XxsOffset = 62;
inline constexpr ByteTable kIq3XxsTable = make_table64([](int i) {
  const int level = kIq3XxsLevels[i & 7];
  return kIq3XxsOffset + ((i & 8) != 0 ? -level : level);
});
inline constexpr int kIq3SOffset = 15;
inline constexpr ByteTable kIq3STable = make_table64([](int i) {
  const int level = 2 * (i & 7) + 1;
  return kIq3SOffset + ((i & 8) != 0 ? -level : level);
});

// One half of a unit. codes: the bytes hold values 0-3 and 4-7 of one entry, then of the next; bit c of a
// byte of `signs`: the sign of the value with code c of that byte.
inline void set_two_bit_values(Vec codes, Vec signs, Vec* w) {
  const Vec sign_bit = spread(0x04040404);
  w[0] = lookup64(kIq2Table, select(sign_bit, shift16<-2>(signs), codes));
  w[1] = lookup64(kIq2Table, select(sign_bit, shift16<-1>(signs), shift16<2>(codes)));
  w[2] = lookup64(kIq2Table, select(sign_bit, signs, shift16<4>(codes)));
  w[3] = lookup64(kIq2Table, select(sign_bit, shift16<1>(signs), shift16<6>(codes)));
}
// Two entries of IQ1, as 8 times the code: 7 more than the value, or 9 where the entry's shift is -1.
inline void set_ternary_values(Vec entry0, Vec entry1, Vec* w) {
  const Vec code = spread(0x18181818);
  w[0] = and_(entry0, code);
  w[1] = and_(shift16<2>(entry0), code);
  w[2] = and_(entry1, code);
  w[3] = and_(shift16<2>(entry1), code);
}
inline constexpr int kIq1Offset = 7;
// Bits of a lane as the integers 0 and 1 in its halves.
template <int kBit, int kOtherBit>
inline Vec bits_in_halves(Vec a) {
  static constexpr ByteTable kStarts = lane_bit_starts(kBit, 0, kOtherBit, 0);
  return and_(bits_from(kStarts, a), spread(0x00010001));
}
// One half of a unit from four entries of four values: bytes of `low` hold values 0 and 1 of an entry, of
// `high` 2 and 3.
inline void set_three_bit_values(Vec low, Vec high, Vec signs, const ByteTable& table, Vec* w) {
  const Vec sign_bit = spread(0x08080808);
  w[0] = lookup64(table, select(sign_bit, shift16<-3>(signs), low));
  w[1] = lookup64(table, select(sign_bit, shift16<-2>(signs), shift16<4>(low)));
  w[2] = lookup64(table, select(sign_bit, shift16<-1>(signs), high));
  w[3] = lookup64(table, select(sign_bit, signs, shift16<4>(high)));
}

inline constexpr ByteTable kNibbles0To3 = lane_bit_starts(0, 4, 8, 12),
                           kNibbles4To7 = lane_bit_starts(16, 20, 24, 28);
inline constexpr ByteTable kSevenBits = lane_bit_starts(0, 7, 14, 21);

// Sign bytes of entries 0, 2, 1, 3 as set_two_bit_values takes them.
inline constexpr ByteTable kSignsOf01 = lane_bit_starts(0, 4, 16, 20),
                           kSignsOf23 = lane_bit_starts(8, 12, 24, 28);

// 2 s + 1 for the s of kMask from bit kBit on
template <int kBit, uint32_t kMask = 15>
inline Floats odd_scale(Vec a) {
  const Vec twice = kBit == 0 ? _mm512_slli_epi32(a, 1) : _mm512_srli_epi32(a, kBit == 0 ? 0 : kBit - 1);
  return to_floats(_mm512_ternarylogic_epi32(twice, spread(2 * kMask), spread(1), 0xea));  // (a & b) | c
}

// ---- the types

struct IQ2_XXS : LaneFormat<TensorType::kIQ2_XXS, 256, 66, ScalePer32, kIq2Offset, Order::kStride4> {
  struct Block {
    const Rows rows;
    const Floats factor;
    Strip two;
    explicit Block(const Rows& at) : rows(at), factor(eighth(low_half(load_word(at, 0)))) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      static constexpr ByteTable kSigns = lane_bit_starts(0, 14, 7, 21);  // of entries 0, 2, 1, 3
      const Vec word = two.word[2 * (k % 2) + 1];
      const auto index = index_of_bytes<256>(swap_middle_bytes(two.word[2 * (k % 2)]), zero());
      const CodePairs codes = interleave(lookup(kIq2XxsLow, index), lookup(kIq2XxsHigh, index));
      const Vec signs = even_signs<kParityOfBits0To6>(bits_from(kSigns, word));
      u.factor[0] = factor;
      u.scale[0] = odd_scale<28>(word);
      set_two_bit_values(codes.first, bits_from(kSignsOf01, signs), u.w);
      set_two_bit_values(codes.last, bits_from(kSignsOf23, signs), u.w + 4);
    }
  };
};

// The 4-bit scales of IQ2_XS and IQ2_S: byte k of eight, a nibble per half.
template <int k>
inline void set_nibble_scales(const Strip& strip, Unit<ScalePer16>& u) {
  const Vec word = strip.word[2 + k / 4];  // the last eight bytes of the strip
  u.scale[0] = odd_scale<8 * (k % 4)>(word);
  u.scale[1] = odd_scale<8 * (k % 4) + 4>(word);
}

struct IQ2_XS : LaneFormat<TensorType::kIQ2_XS, 256, 74, ScalePer16, kIq2Offset, Order::kStride4> {
  struct Block {
    const Rows rows;
    const Floats factor;
    const Strip tail;
    Strip two;
    explicit Block(const Rows& at)
        : rows(at), factor(eighth(low_half(load_word(at, 0)))), tail(load_strip(at, 58)) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      // Two 16-bit words each: 9 bits of index, 7 of signs.
      const Vec first = two.word[2 * (k % 2)], last = two.word[2 * (k % 2) + 1];
      const Vec even = spread(0x00ff00ff);
      const Vec rest = select(even, _mm512_srli_epi32(first, 8), last);
      const auto index = index_of_bytes<512>(select(even, first, _mm512_slli_epi32(last, 8)), rest);
      const CodePairs codes = interleave(lookup(kIq2XsLow, index), lookup(kIq2XsHigh, index));
      const Vec signs = even_signs<kParityOfBits1To7>(rest);
      u.factor[0] = factor;
      set_nibble_scales<k>(tail, u);
      set_two_bit_values(codes.first, bits_from(kSignsOf01, signs), u.w);
      set_two_bit_values(codes.last, bits_from(kSignsOf23, signs), u.w + 4);
    }
  };
};
struct IQ2_S : LaneFormat<TensorType::kIQ2_S, 256, 82, ScalePer16, kIq2Offset> {
  struct Block {
    const Floats factor;
    const Strip low[2], signs[2], tail;
    explicit Block(const Rows& at)
        : factor(eighth(low_half(load_word(at, 0)))),
          low{load_strip(at, 2), load_strip(at, 18)},
          signs{load_strip(at, 34), load_strip(at, 50)},
          tail(load_strip(at, 66)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      Vec entry[4];
      gather_entries<8 * (k % 4), 2, 2>(kIq2SWords, low[k / 4].word[k % 4], tail.word[k / 4], entry);
      u.factor[0] = factor;
      set_nibble_scales<k>(tail, u);
      // Signs m and m + 4 of each entry at bits 2 and 6 of byte m.
      static constexpr ByteTable kSigns[4] = {lane_bit_starts(-2, -1, 0, 1), lane_bit_starts(6, 7, 8, 9),
                                              lane_bit_starts(14, 15, 16, 17),
                                              lane_bit_starts(22, 23, 24, 25)};
      for (int e = 0; e < 4; ++e) {
        const Vec sign = bits_from(kSigns[e], signs[k / 4].word[k % 4]);
        const Vec both = select(spread(0x44444444), sign, entry[e]);
        u.w[2 * e] = lookup64(kIq2Table, both);
        u.w[2 * e + 1] = lookup64(kIq2Table, shift16<4>(both));
      }
    }
  };
};
struct IQ3_XXS : LaneFormat<TensorType::kIQ3_XXS, 256, 98, ScalePer32, kIq3XxsOffset, Order::kStride4> {
  struct Block {
    const Rows rows;
    const Floats factor;
    const Strip signs_and_scales[2];
    Strip two;
    explicit Block(const Rows& at)
        : rows(at),
          factor(mul(low_half(load_word(at, 0)), spread_lanes(0.25f))),
          signs_and_scales{load_strip(at, 66), load_strip(at, 82)} {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      const Vec word = signs_and_scales[k / 4].word[k % 4];
      const Vec signs = even_signs<kParityOfBits0To6>(bits_from(kSevenBits, word));
      u.factor[0] = factor;
      u.scale[0] = odd_scale<28>(word);
      for (int half = 0; half < 2; ++half) {
        const auto index = index_of_bytes<256>(two.word[2 * (k % 2) + half], zero());
        set_three_bit_values(lookup(kIq3XxsLow, index), lookup(kIq3XxsHigh, index),
                             bits_from(half == 0 ? kNibbles0To3 : kNibbles4To7, signs), kIq3XxsTable,
                             u.w + 4 * half);
      }
    }
  };
};
struct IQ3_S : LaneFormat<TensorType::kIQ3_S, 256, 110, ScalePer32, kIq3SOffset, Order::kStride4> {
  struct Block {
    const Rows rows;
    const Floats factor;
    const Strip signs[2];
    const Vec high_bits[2], scales;
    Strip two;
    explicit Block(const Rows& at)
        : rows(at),
          factor(low_half(load_word(at, 0))),
          signs{load_strip(at, 74), load_strip(at, 90)},
          high_bits{load_word(at, 66), load_word(at, 70)},
          scales(load_word(at, 106)) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      static constexpr ByteTable kFourTimes = make_table64([](int i) { return i / 4 % 4 * 4 + k % 4; });
      const Vec ninth = _mm512_shuffle_epi8(high_bits[k / 4], kFourTimes.load());
      const Vec sign = signs[k / 4].word[k % 4];
      u.factor[0] = factor;
      u.scale[0] = odd_scale<4 * k>(scales);
      for (int half = 0; half < 2; ++half) {
        const Vec bytes = two.word[2 * (k % 2) + half];
        const EntryIndex<512> index{
            bytes,
            {_mm512_movepi8_mask(bytes),
             _mm512_test_epi8_mask(ninth, spread(half == 0 ? 0x08040201 : 0x80402010))}};
        set_three_bit_values(lookup(kIq3SLow, index), lookup(kIq3SHigh, index),
                             bits_from(half == 0 ? kNibbles0To3 : kNibbles4To7, sign), kIq3STable,
                             u.w + 4 * half);
      }
    }
  };
};

struct IQ1_S : LaneFormat<TensorType::kIQ1_S, 256, 50, ScalePer32Minus, kIq1Offset> {
  struct Block {
    const Floats factor;
    const Strip low[2], high;
    explicit Block(const Rows& at)
        : factor(eighth(low_half(load_word(at, 0)))),
          low{load_strip(at, 2), load_strip(at, 18)},
          high(load_strip(at, 34)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      constexpr int kFirstBit = 16 * (k % 2);
      const Vec word = high.word[k / 2];  // in each half: 4 x 3 bits of index, 3 of scale, the shift
      Vec entry[4];
      gather_entries<kFirstBit, 3, 3>(kIq1Words, low[k / 4].word[k % 4], word, entry);
      u.factor[0] = factor;
      u.scale[0] = odd_scale<kFirstBit + 12, 7>(word);
      u.minus[0] = bits_in_halves<kFirstBit + 15, kFirstBit + 15>(word);
      set_ternary_values(entry[0], entry[1], u.w);
      set_ternary_values(entry[2], entry[3], u.w + 4);
    }
  };
};
struct IQ1_M : LaneFormat<TensorType::kIQ1_M, 256, 56, ScalePer16Minus, kIq1Offset> {
  struct Block {
    const Strip low[2], high, tail;
    Floats factor;
    explicit Block(const Rows& at)
        : low{load_strip(at, 0), load_strip(at, 16)}, high(load_strip(at, 32)), tail(load_strip(at, 40)) {
      factor = eighth(spread_out_half(tail.word[2], tail.word[3]));
    }
    template <int k>
    void unit(Unit<Shape>& u) const {
      constexpr int kFirstBit = 16 * (k % 2);
      const Vec word = high.word[k / 2];  // in each half: 3 bits of index and the shift, four times
      Vec entry[4];
      gather_entries<kFirstBit, 4, 3>(kIq1Words, low[k / 4].word[k % 4], word, entry);
      // Groups 4i .. 4i+3 have their 3 bits in 16-bit word i.
      constexpr int kFirstScaleBit = 16 * (k / 2 % 2) + 6 * (k % 2);
      u.factor[0] = factor;
      u.scale[0] = odd_scale<kFirstScaleBit, 7>(tail.word[2 + k / 4]);
      u.scale[1] = odd_scale<kFirstScaleBit + 3, 7>(tail.word[2 + k / 4]);
      u.minus[0] = bits_in_halves<kFirstBit + 3, kFirstBit + 7>(word);
      u.minus[1] = bits_in_halves<kFirstBit + 11, kFirstBit + 15>(word);
      set_ternary_values(entry[0], entry[1], u.w);
      set_ternary_values(entry[2], entry[3], u.w + 4);
    }
  };
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
