#pragma once
// The code book types by lanes, with AVX2: entries are loaded one by one from tables in memory (the
// first-level cache holds them) and put into lanes two by two; signs and shifts are applied to all rows at
// once.

#include "services/quant/code_book_entries.h"
#include "services/quant/formats_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// ---- entries into lanes

// An entry of 8 values of each row: values 0-3 in w[0], 4-7 in w[1].
template <class Entries, class IndexOf>
inline void load_entries8(const Entries& entries, IndexOf index_of, Vec* w) {
  const auto pair = [&](int row) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i_u*>(&entries[index_of(row)]));
    return _mm_loadh_pi(_mm_castsi128_ps(first), reinterpret_cast<const __m64*>(&entries[index_of(row + 1)]));
  };
  const __m256 rows0145 = _mm256_set_m128(pair(4), pair(0)), rows2367 = _mm256_set_m128(pair(6), pair(2));
  w[0] = _mm256_castps_si256(_mm256_shuffle_ps(rows0145, rows2367, 0b10'00'10'00));
  w[1] = _mm256_castps_si256(_mm256_shuffle_ps(rows0145, rows2367, 0b11'01'11'01));
}
// An entry of 4 values of each row.
template <class Entries, class IndexOf>
inline Vec load_entries4(const Entries& entries, IndexOf index_of) {
  const auto pair = [&](int row) {  // the second load is part of the instruction, which reads 16 bytes
    return _mm_unpacklo_epi32(
        _mm_loadu_si32(&entries[index_of(row)]),
        _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(&entries[index_of(row + 1)])));
  };
  return _mm256_set_m128i(_mm_unpacklo_epi64(pair(4), pair(6)), _mm_unpacklo_epi64(pair(0), pair(2)));
}

// Indices of more than 8 bits, four of each row: made for all rows at once, read one by one.
struct Indices {
  alignas(32) uint16_t rows0145[4][4], rows2367[4][4];

  Indices(Vec low_bytes, Vec high_bytes) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(rows0145), _mm256_unpacklo_epi8(low_bytes, high_bytes));
    _mm256_store_si256(reinterpret_cast<__m256i*>(rows2367), _mm256_unpackhi_epi8(low_bytes, high_bytes));
  }
  std::size_t of(int row, int i) const {
    const int place = row / 4 * 2 + row % 2;
    return row % 4 < 2 ? rows0145[place][i] : rows2367[place][i];
  }
};
template <class Entries>
inline void load_unit8(const Entries& entries, const Indices& indices, Vec (&w)[8]) {
  for (int i = 0; i < 4; ++i) load_entries8(entries, [&](int row) { return indices.of(row, i); }, w + 2 * i);
}

// ---- signs

// Field i of `width` bits, from bit first + i * distance on, becomes byte i.
template <int kFirst, int kDistance>
inline Vec fields_to_bytes(Vec a, uint32_t mask) {
  const Vec low = join(shift32<kFirst>(a), mask, shift32<kFirst + kDistance - 8>(a), mask << 8);
  const Vec high = join(shift32<kFirst + 2 * kDistance - 16>(a), mask << 16,
                        shift32<kFirst + 3 * kDistance - 24>(a), mask << 24);
  return or_(low, high);
}

// Bytes of 7 signs, to which an eighth makes their number even.
inline Vec with_even_signs(Vec sevens) {
  static constexpr NibbleTable kParity =
      nibble_table({0, 128, 128, 0, 128, 0, 0, 128, 128, 0, 0, 128, 0, 128, 128, 0}, 0);
  const Vec high = and_(shift16<4>(sevens), spread(0x07070707));
  return or_(sevens, xor_(lookup_low_nibbles(kParity, sevens), lookup_low_nibbles(kParity, high)));
}

// w[j] becomes kOffset + w[j], or kOffset - w[j] where the sign is set. Byte i of `signs` holds the signs of
// w[2 i] and w[2 i + 1]; where kSwapped, bytes 1 and 2 are exchanged.
template <int kOffset, bool kSwapped = false>
inline void apply_signs(Vec signs, Vec (&w)[8]) {
  const Vec bytes[4] = {four_times<0>(signs), four_times<kSwapped ? 2 : 1>(signs),
                        four_times<kSwapped ? 1 : 2>(signs), four_times<3>(signs)};
  for (int j = 0; j < 8; ++j) {
    const Vec minus = bytes_with(bytes[j / 2], j % 2 == 0 ? 0x08040201 : 0x80402010);
    const Vec offset = _mm256_sub_epi8(_mm256_set1_epi8(kOffset), minus);
    w[j] = _mm256_add_epi8(xor_(w[j], minus), offset);
  }
}

// ---- scales

// 2 s + 1, where s has kBits bits from kStart on.
template <int kStart, int kBits>
inline Floats odd_scale(Vec a) {
  constexpr uint32_t kMask = ((1u << kBits) - 1) << 1;
  return to_floats(or_(field<kStart - 1>(a, kMask), spread(1)));
}

// ---- 8 values an entry

inline constexpr int kIq2Offset = 43, kIq2Max = 86;

struct IQ2_XXS : LaneFormat<TensorType::kIQ2_XXS, 256, 66, ScalePer32, kIq2Offset> {
  static constexpr int kMax = kIq2Max;
  struct Block {
    const Rows rows;
    const Floats factor;
    Strip two;
    explicit Block(const Rows& at) : rows(at), factor(eighth(low_half(load_word(at, 0)))) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      const Vec signs_and_scale = two.word[2 * (k % 2) + 1];
      u.factor[0] = factor;
      u.scale[0] = odd_scale<28, 4>(signs_and_scale);
      for (int i = 0; i < 4; ++i) {
        load_entries8(
            kIq2XxsEntries, [&](int row) { return *rows.at(static_cast<std::size_t>(row), 2 + 8 * k + i); },
            u.w + 2 * i);
      }
      apply_signs<kIq2Offset>(with_even_signs(fields_to_bytes<0, 7>(signs_and_scale, 0x7f)), u.w);
    }
  };
};

// The 4-bit scales of IQ2_XS and IQ2_S: a nibble per half, eight of them a word.
template <int k>
inline void set_nibble_scales(const Vec (&words)[2], Unit<ScalePer16>& u) {
  u.scale[0] = odd_scale<8 * (k % 4), 4>(words[k / 4]);
  u.scale[1] = odd_scale<8 * (k % 4) + 4, 4>(words[k / 4]);
}

struct IQ2_XS : LaneFormat<TensorType::kIQ2_XS, 256, 74, ScalePer16, kIq2Offset> {
  static constexpr int kMax = kIq2Max;
  struct Block {
    const Rows rows;
    const Floats factor;
    const Vec scales[2];
    Strip two;
    explicit Block(const Rows& at)
        : rows(at),
          factor(eighth(low_half(load_word(at, 0)))),
          scales{load_word(at, 66), load_word(at, 70)} {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      // Two 16-bit words each: 9 bits of index, 7 of signs.
      const Vec first = two.word[2 * (k % 2)], last = two.word[2 * (k % 2) + 1];
      u.factor[0] = factor;
      set_nibble_scales<k>(scales, u);
      alignas(32) uint16_t index[2][8][2];
      _mm256_store_si256(reinterpret_cast<__m256i*>(index[0]), and_(first, spread(0x01ff01ff)));
      _mm256_store_si256(reinterpret_cast<__m256i*>(index[1]), and_(last, spread(0x01ff01ff)));
      for (int i = 0; i < 4; ++i)
        load_entries8(kIq2XsEntries, [&](int row) { return index[i / 2][row][i % 2]; }, u.w + 2 * i);
      const Vec sevens = or_(shift16<9>(first), shift32<-8>(shift16<9>(last)));  // of entries 0, 2, 1, 3
      apply_signs<kIq2Offset, true>(with_even_signs(sevens), u.w);
    }
  };
};
struct IQ2_S : LaneFormat<TensorType::kIQ2_S, 256, 82, ScalePer16, kIq2Offset> {
  static constexpr int kMax = kIq2Max;
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
      u.factor[0] = factor;
      set_nibble_scales<k>({tail.word[2], tail.word[3]}, u);
      const Vec high = field<8 * (k % 4)>(tail.word[k / 4], 255);  // 2 bits an entry
      load_unit8(kIq2SEntries, Indices(low[k / 4].word[k % 4], fields_to_bytes<0, 2>(high, 3)), u.w);
      apply_signs<kIq2Offset>(signs[k / 4].word[k % 4], u.w);
    }
  };
};

// 8 (g + 1) from the code book, plus 2 where the shift is upwards.
inline constexpr int kIq1Offset = 9, kIq1Max = 18;

struct IQ1_S : LaneFormat<TensorType::kIQ1_S, 256, 50, ScalePer32, kIq1Offset> {
  static constexpr int kMax = kIq1Max;
  struct Block {
    const Floats factor;
    const Strip low[2], high;
    explicit Block(const Rows& at)
        : factor(eighth(low_half(load_word(at, 0)))),
          low{load_strip(at, 2), load_strip(at, 18)},
          high(load_strip(at, 34)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      const Vec h = shift32<16 * (k % 2)>(high.word[k / 2]);  // 4 x 3 bits of index, 3 of scale, the shift
      u.factor[0] = factor;
      u.scale[0] = odd_scale<12, 3>(h);
      load_unit8(kIq1Entries, Indices(low[k / 4].word[k % 4], fields_to_bytes<0, 3>(h, 7)), u.w);
      const Vec down = _mm256_srai_epi32(shift32<-16>(h), 31);
      const Vec plus = _mm256_andnot_si256(down, spread(0x02020202));
      for (Vec& w : u.w) w = or_(w, plus);
    }
  };
};
struct IQ1_M : LaneFormat<TensorType::kIQ1_M, 256, 56, ScalePer16, kIq1Offset> {
  static constexpr int kMax = kIq1Max;
  struct Block {
    const Strip low[2], high, tail;
    Floats factor;
    explicit Block(const Rows& at)
        : low{load_strip(at, 0), load_strip(at, 16)}, high(load_strip(at, 32)), tail(load_strip(at, 40)) {
      factor = eighth(spread_out_half(tail.word[2], tail.word[3]));
    }
    template <int k>
    void unit(Unit<Shape>& u) const {
      const Vec h = shift32<16 * (k % 2)>(high.word[k / 2]);  // 3 bits of index and the shift, four times
      // Two scales of 3 bits in each word's halves: groups 4i .. 4i+3 are in half i.
      constexpr int kFirstBit = 16 * (k / 2 % 2) + 6 * (k % 2);
      u.factor[0] = factor;
      u.scale[0] = odd_scale<kFirstBit, 3>(tail.word[2 + k / 4]);
      u.scale[1] = odd_scale<kFirstBit + 3, 3>(tail.word[2 + k / 4]);
      load_unit8(kIq1Entries, Indices(low[k / 4].word[k % 4], fields_to_bytes<0, 4>(h, 7)), u.w);
      const Vec plus = xor_(fields_to_bytes<2, 4>(h, 2), spread(0x02020202));
      const Vec of[4] = {four_times<0>(plus), four_times<1>(plus), four_times<2>(plus), four_times<3>(plus)};
      for (int j = 0; j < 8; ++j) u.w[j] = or_(u.w[j], of[j / 2]);
    }
  };
};

// ---- 4 values an entry

struct IQ3_XXS : LaneFormat<TensorType::kIQ3_XXS, 256, 98, ScalePer32, 62> {
  static constexpr int kMax = 124;
  struct Block {
    const Rows rows;
    const Floats factor;
    const Strip signs_and_scales[2];
    explicit Block(const Rows& at)
        : rows(at),
          factor(mul(low_half(load_word(at, 0)), spread_lanes(0.25f))),
          signs_and_scales{load_strip(at, 66), load_strip(at, 82)} {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      const Vec word = signs_and_scales[k / 4].word[k % 4];
      u.factor[0] = factor;
      u.scale[0] = odd_scale<28, 4>(word);
      for (int j = 0; j < 8; ++j) {
        u.w[j] = load_entries4(
            kIq3XxsEntries, [&](int row) { return *rows.at(static_cast<std::size_t>(row), 2 + 8 * k + j); });
      }
      apply_signs<kOffset>(with_even_signs(fields_to_bytes<0, 7>(word, 0x7f)), u.w);
    }
  };
};
struct IQ3_S : LaneFormat<TensorType::kIQ3_S, 256, 110, ScalePer32, 15> {
  static constexpr int kMax = 30;
  struct Block {
    const Rows rows;
    const Floats factor;
    const Strip head, middle, tail;  // from bytes 66, 82 and 94 on
    Strip two;
    explicit Block(const Rows& at)
        : rows(at),
          factor(low_half(load_word(at, 0))),
          head(load_strip(at, 66)),
          middle(load_strip(at, 82)),
          tail(load_strip(at, 94)) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      u.factor[0] = factor;
      u.scale[0] = odd_scale<4 * k, 4>(tail.word[3]);
      const Vec ninth = four_times<k % 4>(head.word[k / 4]);
      for (int half = 0; half < 2; ++half) {
        const Vec set = bytes_with(ninth, half == 0 ? 0x08040201 : 0x80402010);
        const Indices indices(two.word[2 * (k % 2) + half], and_(set, spread(0x01010101)));
        for (int i = 0; i < 4; ++i)
          u.w[4 * half + i] = load_entries4(kIq3SEntries, [&](int row) { return indices.of(row, i); });
      }
      apply_signs<kOffset>(signs<k>(), u.w);
    }
    template <int k>
    Vec signs() const {
      if constexpr (k < 2) return head.word[2 + k];
      if constexpr (k < 5) return middle.word[k - 2];
      return tail.word[k - 5];
    }
  };
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
