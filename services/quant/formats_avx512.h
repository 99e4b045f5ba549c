#pragma once
// Every quantized type by lanes (simd_avx512.h): how the blocks of 16 rows become units. A unit is 32 values
// of each row: bytes w[0..7], where byte m of w[j] in lane r is the integer of row r's value kOrder(j, m),
// plus kOffset so that it is unsigned; and the scales of docs/numerics.md. The expressions of those, and what
// the parts of a block mean, are there.
//
// A format is a struct of
//   Shape          which scales a unit has
//   kOffset        what is added to the weights
//   kOrder         which activations w[j] meets
//   Block          reads the parts of 16 blocks; unit<k>(u) makes unit k, in ascending order of k

#include "services/gguf/tensor_type.h"
#include "services/quant/code_books.h"
#include "services/quant/simd_avx512.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using gguf::TensorType;

enum class Order : uint8_t {
  kNatural,  // w[j]: values 4j .. 4j+3
  kStride4,  // w[j], w[j+4] for j < 4: values j, j+4, j+8, j+12 of the first and last 16
};
enum class MinimumKind : uint8_t { kNone, kFloat, kInteger };

// kGroup: values that share an integer scale, 0 if there is none. kFactorPer16: a float factor of each half
// instead.
template <int kGroup, MinimumKind kMinimumKind = MinimumKind::kNone, bool kFactorPer16 = false>
struct UnitShape {
  static constexpr bool kScaled = kGroup != 0;
  static constexpr bool kHalves = kGroup == 16 || kFactorPer16;  // two dot products, of 16 values each
  static constexpr bool kFactors = kFactorPer16;
  static constexpr MinimumKind kMinimum = kMinimumKind;
};

// Units of 16 rows. What the shape lacks stays unset.
template <class S>
struct Unit {
  using Shape = S;
  Vec w[8];
  Floats factor[S::kFactors ? 2 : 1];
  Floats scale[S::kHalves ? 2 : 1];  // integers
  Floats minimum_factor;             // with its sign: it is added
  Floats minimum[S::kHalves ? 2 : 1];
};

template <TensorType type, int values, int bytes, class S, int offset, Order order = Order::kNatural>
struct LaneFormat {
  static constexpr TensorType kType = type;
  static constexpr int kBlockBytes = bytes;
  static constexpr int kUnits = values / 32;
  static constexpr int kOffset = offset;
  static constexpr Order kOrder = order;
  using Shape = S;
};

using NoScale = UnitShape<0>;
using FloatMinimum = UnitShape<0, MinimumKind::kFloat>;
using ScalePer32 = UnitShape<32>;
using ScalePer16 = UnitShape<16>;
using ScaleMinimumPer32 = UnitShape<32, MinimumKind::kInteger>;
using ScaleMinimumPer16 = UnitShape<16, MinimumKind::kInteger>;
using FactorPer16 = UnitShape<0, MinimumKind::kNone, true>;

inline Floats negative(Floats a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
inline Vec low_nibbles(Vec a) { return and_(a, spread(0x0f0f0f0f)); }

// Low nibbles of 16 bytes, then the high ones.
inline void set_nibbles(const Strip& s, Vec (&w)[8]) {
  for (int j = 0; j < 4; ++j) {
    w[j] = low_nibbles(s.word[j]);
    w[j + 4] = low_nibbles(shift16<4>(s.word[j]));
  }
}
// The same through a table of 16, whose copies ignore what is above the nibble.
inline void set_nibbles(const Strip& s, const ByteTable& table, Vec (&w)[8]) {
  for (int j = 0; j < 4; ++j) {
    w[j] = lookup64(table, s.word[j]);
    w[j + 4] = lookup64(table, shift16<4>(s.word[j]));
  }
}
// Bits 4j..4j+3 of each lane become bit 4 of the bytes of w[j].
inline void add_fifth_bits(Vec high, Vec (&w)[8]) {
  static constexpr auto kStarts = [] {
    struct {
      ByteTable of[8];
    } t{};
    for (int j = 0; j < 8; ++j) t.of[j] = lane_bit_starts(4 * j - 4, 4 * j - 3, 4 * j - 2, 4 * j - 1);
    return t;
  }();
  for (int j = 0; j < 8; ++j) w[j] = or_(w[j], and_(bits_from(kStarts.of[j], high), spread(0x10101010)));
}

inline constexpr int kIq4Offset = 127;
inline constexpr ByteTable kIq4Table = make_table64([](int i) {
  constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kValues[i % 16] + kIq4Offset;
});
inline constexpr int kFp4Offset = 12;
inline constexpr ByteTable kFp4Table = make_table64([](int i) {
  constexpr int8_t kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return kValues[i % 16] + kFp4Offset;
});

// ---- blocks of 32

struct Q4_0 : LaneFormat<TensorType::kQ4_0, 32, 18, NoScale, 8> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = low_half(load_word(rows, 0));
      set_nibbles(load_strip(rows, 2), u.w);
    }
  };
};
struct Q4_1 : LaneFormat<TensorType::kQ4_1, 32, 20, FloatMinimum, 0> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      const Vec factors = load_word(rows, 0);
      u.factor[0] = low_half(factors);
      u.minimum_factor = high_half(factors);
      set_nibbles(load_strip(rows, 4), u.w);
    }
  };
};
struct Q5_0 : LaneFormat<TensorType::kQ5_0, 32, 22, NoScale, 16> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = low_half(load_word(rows, 0));
      set_nibbles(load_strip(rows, 6), u.w);
      add_fifth_bits(load_word(rows, 2), u.w);
    }
  };
};
struct Q5_1 : LaneFormat<TensorType::kQ5_1, 32, 24, FloatMinimum, 0> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      const Strip head = load_strip(rows, 0);
      u.factor[0] = low_half(head.word[0]);
      u.minimum_factor = high_half(head.word[0]);
      set_nibbles(load_strip(rows, 8), u.w);
      add_fifth_bits(head.word[1], u.w);
    }
  };
};
struct Q8_0 : LaneFormat<TensorType::kQ8_0, 32, 34, NoScale, 128> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = low_half(load_word(rows, 0));
      const Strip first = load_strip(rows, 2), last = load_strip(rows, 18);
      for (int j = 0; j < 4; ++j) {
        u.w[j] = _mm512_xor_si512(first.word[j], spread(0x80808080));
        u.w[j + 4] = _mm512_xor_si512(last.word[j], spread(0x80808080));
      }
    }
  };
};
struct IQ4_NL : LaneFormat<TensorType::kIQ4_NL, 32, 18, NoScale, kIq4Offset> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = low_half(load_word(rows, 0));
      set_nibbles(load_strip(rows, 2), kIq4Table, u.w);
    }
  };
};
struct MXFP4 : LaneFormat<TensorType::kMXFP4, 32, 17, NoScale, kFp4Offset> {
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      // 2^(e - 128): an exponent field of e - 1, or for e < 2 a subnormal number.
      const Vec e = field<0>(load_word(rows, 0), 255);
      const Vec normal = _mm512_slli_epi32(_mm512_sub_epi32(e, spread(1)), 23);
      const Vec subnormal = _mm512_sllv_epi32(spread(0x200000), e);
      const auto is_subnormal = _mm512_cmplt_epu32_mask(e, spread(2));
      u.factor[0] = _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_subnormal, normal, subnormal));
      set_nibbles(load_strip(rows, 1), kFp4Table, u.w);
    }
  };
};

// ---- blocks of 64

struct Q2_0 : LaneFormat<TensorType::kQ2_0, 64, 18, NoScale, 1, Order::kStride4> {
  struct Block {
    const Floats factor;
    const Strip quants;
    explicit Block(const Rows& rows) : factor(low_half(load_word(rows, 0))), quants(load_strip(rows, 2)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = factor;
      for (int half = 0; half < 2; ++half) {
        const Vec four = quants.word[2 * k + half];
        u.w[4 * half] = and_(four, spread(0x03030303));
        u.w[4 * half + 1] = and_(shift16<2>(four), spread(0x03030303));
        u.w[4 * half + 2] = and_(shift16<4>(four), spread(0x03030303));
        u.w[4 * half + 3] = and_(shift16<6>(four), spread(0x03030303));
      }
    }
  };
};
struct NVFP4 : LaneFormat<TensorType::kNVFP4, 64, 36, FactorPer16, kFp4Offset> {
  struct Block {
    const Rows rows;
    const Vec scales;
    explicit Block(const Rows& at) : rows(at), scales(load_word(at, 0)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = factor<2 * k>();
      u.factor[1] = factor<2 * k + 1>();
      const Strip s = load_strip(rows, 4 + 16 * k);
      for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < 2; ++j) {
          u.w[4 * half + j] = lookup64(kFp4Table, s.word[2 * half + j]);
          u.w[4 * half + j + 2] = lookup64(kFp4Table, shift16<4>(s.word[2 * half + j]));
        }
      }
    }
    // Half of the e4m3 number: read as binary16 its seven bits give it 2^-7 fold, subnormals included. 0x7f
    // means 0.
    template <int group>
    Floats factor() const {
      const Vec b = field<8 * group>(scales, 255);
      const Floats value = low_half(_mm512_slli_epi32(and_(b, spread(127)), 7));
      return _mm512_maskz_mul_ps(_mm512_cmpneq_epi32_mask(b, spread(127)), value, spread_float(128));
    }
  };
};

// ---- blocks of 256: K-quants

// Two signed or unsigned bytes, 2k and 2k+1, of 16 in words.
template <int k>
inline Vec scale_byte(const Vec (&words)[4], int half, uint32_t mask) {
  const Vec word = words[k / 2];
  return half == 0 ? field<16 * (k % 2)>(word, mask) : field<16 * (k % 2) + 8>(word, mask);
}

struct Q2_K : LaneFormat<TensorType::kQ2_K, 256, 84, ScaleMinimumPer16, 0> {
  struct Block {
    const Rows rows;
    const Strip scales;
    const Floats factor, minimum_factor;
    Strip first, last;  // of the present 128 values
    explicit Block(const Rows& at)
        : rows(at),
          scales(load_strip(at, 0)),
          factor(low_half(load_word(at, 80))),
          minimum_factor(negative(high_half(load_word(at, 80)))) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 4 == 0) {
        first = load_strip(rows, 16 + 8 * k);
        last = load_strip(rows, 32 + 8 * k);
      }
      u.factor[0] = factor;
      u.minimum_factor = minimum_factor;
      for (int half = 0; half < 2; ++half) {
        const Vec both = scale_byte<k>(scales.word, half, 255);
        u.scale[half] = to_floats(field<0>(both, 15));
        u.minimum[half] = to_floats(_mm512_srli_epi32(both, 4));
      }
      for (int j = 0; j < 4; ++j) {
        u.w[j] = and_(shift16<2 * (k % 4)>(first.word[j]), spread(0x03030303));
        u.w[j + 4] = and_(shift16<2 * (k % 4)>(last.word[j]), spread(0x03030303));
      }
    }
  };
};
struct Q3_K : LaneFormat<TensorType::kQ3_K, 256, 110, ScalePer16, 4> {
  struct Block {
    const Rows rows;
    const Strip high_first, high_last;
    Strip first, last;
    Vec scales[4];
    Floats factor;
    explicit Block(const Rows& at) : rows(at), high_first(load_strip(at, 0)), high_last(load_strip(at, 16)) {
      // 12 bytes of scales and d, which end the block: from two bytes before them.
      const Strip tail = load_strip(rows, 94);
      const auto from_third_byte = [&](int i) {
        return or_(_mm512_srli_epi32(tail.word[i], 16), _mm512_slli_epi32(tail.word[i + 1], 16));
      };
      const Vec low0 = from_third_byte(0), low1 = from_third_byte(1), high = from_third_byte(2);
      factor = high_half(tail.word[3]);
      const Vec upper = spread(0x30303030);
      scales[0] = or_(low_nibbles(low0), and_(_mm512_slli_epi32(high, 4), upper));
      scales[1] = or_(low_nibbles(low1), and_(_mm512_slli_epi32(high, 2), upper));
      scales[2] = or_(low_nibbles(shift16<4>(low0)), and_(high, upper));
      scales[3] = or_(low_nibbles(shift16<4>(low1)), and_(_mm512_srli_epi32(high, 2), upper));
    }
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 4 == 0) {
        first = load_strip(rows, 32 + 8 * k);
        last = load_strip(rows, 48 + 8 * k);
      }
      u.factor[0] = factor;
      for (int half = 0; half < 2; ++half)
        u.scale[half] = to_floats(_mm512_sub_epi32(scale_byte<k>(scales, half, 255), spread(32)));
      const auto three_bits = [](Vec low, Vec high) {
        const Vec third = shift16<k - 2>(high);
        return and_(select(spread(0x04040404), third, shift16<2 * (k % 4)>(low)), spread(0x07070707));
      };
      for (int j = 0; j < 4; ++j) {
        u.w[j] = three_bits(first.word[j], high_first.word[j]);
        u.w[j + 4] = three_bits(last.word[j], high_last.word[j]);
      }
    }
  };
};

// d, dmin and the twelve bytes of 6-bit scales and minimums that begin a block of Q4_K and Q5_K.
struct SixBitScales {
  Floats factor, minimum_factor;
  Vec scales[2], minimums[2];

  explicit SixBitScales(const Rows& rows) {
    const Strip head = load_strip(rows, 0);
    factor = low_half(head.word[0]);
    minimum_factor = negative(high_half(head.word[0]));
    const Vec a = head.word[1], b = head.word[2], c = head.word[3];
    const Vec six = spread(0x3f3f3f3f), upper = spread(0x30303030);
    scales[0] = and_(a, six);
    minimums[0] = and_(b, six);
    scales[1] = or_(low_nibbles(c), and_(_mm512_srli_epi32(a, 2), upper));
    minimums[1] = or_(low_nibbles(shift16<4>(c)), and_(_mm512_srli_epi32(b, 2), upper));
  }
  template <int k>
  void set(Unit<ScaleMinimumPer32>& u) const {
    u.factor[0] = factor;
    u.minimum_factor = minimum_factor;
    u.scale[0] = to_floats(field<8 * (k % 4)>(scales[k / 4], 63));
    u.minimum[0] = to_floats(field<8 * (k % 4)>(minimums[k / 4], 63));
  }
};
struct Q4_K : LaneFormat<TensorType::kQ4_K, 256, 144, ScaleMinimumPer32, 0> {
  struct Block {
    const Rows rows;
    const SixBitScales scales;
    Strip first, last;  // of the present 64 values
    explicit Block(const Rows& at) : rows(at), scales(at) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) {
        first = load_strip(rows, 16 + 16 * k);
        last = load_strip(rows, 32 + 16 * k);
      }
      scales.set<k>(u);
      for (int j = 0; j < 4; ++j) {
        u.w[j] = low_nibbles(shift16<4 * (k % 2)>(first.word[j]));
        u.w[j + 4] = low_nibbles(shift16<4 * (k % 2)>(last.word[j]));
      }
    }
  };
};
struct Q5_K : LaneFormat<TensorType::kQ5_K, 256, 176, ScaleMinimumPer32, 0> {
  struct Block {
    const Rows rows;
    const SixBitScales scales;
    const Strip high_first, high_last;
    Strip first, last;
    explicit Block(const Rows& at)
        : rows(at), scales(at), high_first(load_strip(at, 16)), high_last(load_strip(at, 32)) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) {
        first = load_strip(rows, 48 + 16 * k);
        last = load_strip(rows, 64 + 16 * k);
      }
      scales.set<k>(u);
      const auto five_bits = [](Vec low, Vec high) {
        const Vec fifth = shift16<k - 4>(high);
        return and_(select(spread(0x10101010), fifth, shift16<4 * (k % 2)>(low)), spread(0x1f1f1f1f));
      };
      for (int j = 0; j < 4; ++j) {
        u.w[j] = five_bits(first.word[j], high_first.word[j]);
        u.w[j + 4] = five_bits(last.word[j], high_last.word[j]);
      }
    }
  };
};
struct Q6_K : LaneFormat<TensorType::kQ6_K, 256, 210, ScalePer16, 32> {
  struct Block {
    const Rows rows;
    const Strip scales;
    const Floats factor;
    Strip low[4], high[2];  // of the present 128 values
    explicit Block(const Rows& at)
        : rows(at), scales(load_strip(at, 192)), factor(high_half(load_word(at, 206))) {}
    template <int k>
    void unit(Unit<Shape>& u) {
      constexpr int j = k % 4, kHalf = k / 4;
      if constexpr (j == 0) {
        for (int i = 0; i < 4; ++i) low[i] = load_strip(rows, 64 * kHalf + 16 * i);
        for (int i = 0; i < 2; ++i) high[i] = load_strip(rows, 128 + 32 * kHalf + 16 * i);
      }
      u.factor[0] = factor;
      for (int half = 0; half < 2; ++half) {
        const Vec word = scales.word[k / 2];
        const Vec top = half == 0 ? _mm512_slli_epi32(word, 24 - 16 * (k % 2))
                                  : _mm512_slli_epi32(word, 16 - 16 * (k % 2));
        u.scale[half] = to_floats(_mm512_srai_epi32(top, 24));
      }
      const auto six_bits = [](Vec four, Vec two) {
        return and_(select(spread(0x30303030), shift16<2 * j - 4>(two), shift16<4 * (j / 2)>(four)),
                    spread(0x3f3f3f3f));
      };
      for (int i = 0; i < 4; ++i) {
        u.w[i] = six_bits(low[2 * (j % 2)].word[i], high[0].word[i]);
        u.w[i + 4] = six_bits(low[2 * (j % 2) + 1].word[i], high[1].word[i]);
      }
    }
  };
};
struct IQ4_XS : LaneFormat<TensorType::kIQ4_XS, 256, 136, ScalePer32, kIq4Offset> {
  struct Block {
    const Rows rows;
    const Strip head;
    const Floats factor;
    explicit Block(const Rows& at) : rows(at), head(load_strip(at, 0)), factor(low_half(head.word[0])) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = factor;
      const Vec high = _mm512_slli_epi32(field<16 + 2 * k>(head.word[0], 3), 4);
      u.scale[0] = to_floats(_mm512_sub_epi32(or_(field<4 * k>(head.word[1], 15), high), spread(32)));
      set_nibbles(load_strip(rows, 8 + 16 * k), kIq4Table, u.w);
    }
  };
};

// ---- code book types: codes of entries, by tables in registers or gathered, then codes and signs to bytes

// Low or high byte of each entry's code.
template <std::size_t kEntries>
struct CodeBytes {
  ByteTable of[kEntries / 256][4];
};
template <int kShift, std::size_t kEntries>
constexpr CodeBytes<kEntries> code_bytes(const uint16_t (&codes)[kEntries]) {
  CodeBytes<kEntries> t{};
  for (std::size_t i = 0; i < kEntries; ++i)
    t.of[i / 256][i / 64 % 4].byte[i % 64] = static_cast<uint8_t>(codes[i] >> kShift);
  return t;
}
inline constexpr auto kIq2XxsLow = code_bytes<0>(kIq2XxsCodes), kIq2XxsHigh = code_bytes<8>(kIq2XxsCodes);
inline constexpr auto kIq2XsLow = code_bytes<0>(kIq2XsCodes), kIq2XsHigh = code_bytes<8>(kIq2XsCodes);
inline constexpr auto kIq3XxsLow = code_bytes<0>(kIq3XxsCodes), kIq3XxsHigh = code_bytes<8>(kIq3XxsCodes);
inline constexpr auto kIq3SLow = code_bytes<0>(kIq3SCodes), kIq3SHigh = code_bytes<8>(kIq3SCodes);

inline Vec lookup(const CodeBytes<256>& table, Vec index, __mmask64 /*ninth_bit*/) {
  return lookup256(table.of[0], index);
}
inline Vec lookup(const CodeBytes<512>& table, Vec index, __mmask64 ninth_bit) {
  return _mm512_mask_blend_epi8(ninth_bit, lookup256(table.of[0], index), lookup256(table.of[1], index));
}

// Codes to be gathered. A gather reads 32 bits: one word more than the entries.
template <std::size_t kEntries>
struct CodeWords {
  uint16_t code[kEntries + 1];
};
template <std::size_t kEntries>
constexpr CodeWords<kEntries> code_words(const uint16_t (&codes)[kEntries]) {
  CodeWords<kEntries> t{};
  for (std::size_t i = 0; i < kEntries; ++i) t.code[i] = codes[i];
  return t;
}
inline constexpr auto kIq2SWords = code_words(kIq2SCodes);
inline constexpr auto kIq1Words = code_words(kIq1Codes);

// The code of one entry in the lower 16 bits of each lane; index: (low bits >> 8 * kEntry & 255) with `high`
// on top.
template <int kEntry, std::size_t kEntries>
inline Vec gather_codes(const CodeWords<kEntries>& words, Vec low_bytes, Vec high) {
  const Vec low = _mm512_srli_epi32(low_bytes, 8 * kEntry);
  return _mm512_i32gather_epi32(select(spread(255), low, high), words.code, 2);
}
inline Vec join_halves(Vec low, Vec high) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

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
inline constexpr int kIq1Offset = 9;
inline constexpr ByteTable kIq1Table =
    two_bit_table([](int code, bool minus) { return kIq1Offset + 8 * (code - 1) + (minus ? -1 : 1); });
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
// The same for IQ1, where bit 2 of a byte of `shifts` holds for its four values.
inline void set_ternary_values(Vec codes, Vec shifts, Vec* w) {
  const Vec shift_bit = spread(0x04040404);
  w[0] = lookup64(kIq1Table, select(shift_bit, shifts, codes));
  w[1] = lookup64(kIq1Table, select(shift_bit, shifts, shift16<2>(codes)));
  w[2] = lookup64(kIq1Table, select(shift_bit, shifts, shift16<4>(codes)));
  w[3] = lookup64(kIq1Table, select(shift_bit, shifts, shift16<6>(codes)));
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

// Entries 0, 2, 1, 3 of a unit in the bytes of `index`, their sign bytes in the same order.
template <std::size_t kEntries>
inline void set_two_bit_entries(const CodeBytes<kEntries>& low_table, const CodeBytes<kEntries>& high_table,
                                Vec index, __mmask64 ninth_bit, Vec signs, Vec (&w)[8]) {
  static constexpr ByteTable kFirst = lane_bit_starts(0, 4, 16, 20), kLast = lane_bit_starts(8, 12, 24, 28);
  const Vec low = lookup(low_table, index, ninth_bit), high = lookup(high_table, index, ninth_bit);
  const Vec even = spread(0x00ff00ff);
  set_two_bit_values(select(even, low, _mm512_slli_epi32(high, 8)), bits_from(kFirst, signs), w);
  set_two_bit_values(select(even, _mm512_srli_epi32(low, 8), high), bits_from(kLast, signs), w + 4);
}

// 2 s + 1
inline Floats odd_scale(Vec s) { return to_floats(_mm512_add_epi32(_mm512_add_epi32(s, s), spread(1))); }
inline Floats eighth(Floats a) { return _mm512_mul_ps(a, spread_float(0.125f)); }

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
      static constexpr ByteTable kSwapMiddle = make_table64([](int i) {
        constexpr int kFrom[4] = {0, 2, 1, 3};
        return i / 4 % 4 * 4 + kFrom[i % 4];
      });
      const Vec signs_and_scale = two.word[2 * (k % 2) + 1];
      u.factor[0] = factor;
      u.scale[0] = odd_scale(_mm512_srli_epi32(signs_and_scale, 28));
      set_two_bit_entries(kIq2XxsLow, kIq2XxsHigh,
                          _mm512_shuffle_epi8(two.word[2 * (k % 2)], kSwapMiddle.load()), 0,
                          even_signs<kParityOfBits0To6>(bits_from(kSigns, signs_and_scale)), u.w);
    }
  };
};

// The 4-bit scales of IQ2_XS and IQ2_S: byte k of eight, a nibble per half.
template <int k>
inline void set_nibble_scales(const Strip& strip, Unit<ScalePer16>& u) {
  const Vec word = strip.word[2 + k / 4];  // the last eight bytes of the strip
  u.scale[0] = odd_scale(field<8 * (k % 4)>(word, 15));
  u.scale[1] = odd_scale(field<8 * (k % 4) + 4>(word, 15));
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
      const Vec index = select(even, first, _mm512_slli_epi32(last, 8));
      const Vec rest = select(even, _mm512_srli_epi32(first, 8), last);
      u.factor[0] = factor;
      set_nibble_scales<k>(tail, u);
      set_two_bit_entries(kIq2XsLow, kIq2XsHigh, index, _mm512_test_epi8_mask(rest, spread(0x01010101)),
                          even_signs<kParityOfBits1To7>(rest), u.w);
    }
  };
};
struct IQ2_S : LaneFormat<TensorType::kIQ2_S, 256, 82, ScalePer16, kIq2Offset, Order::kStride4> {
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
      const Vec index = low[k / 4].word[k % 4];
      const Vec high = _mm512_slli_epi32(field<8 * (k % 4)>(tail.word[k / 4], 255), 8);  // 2 bits an entry
      const auto top = [&](Vec shifted) { return and_(shifted, spread(0x300)); };
      const Vec e0 = gather_codes<0>(kIq2SWords, index, top(high));
      const Vec e1 = gather_codes<1>(kIq2SWords, index, top(_mm512_srli_epi32(high, 2)));
      const Vec e2 = gather_codes<2>(kIq2SWords, index, top(_mm512_srli_epi32(high, 4)));
      const Vec e3 = gather_codes<3>(kIq2SWords, index, top(_mm512_srli_epi32(high, 6)));
      const Vec sign = signs[k / 4].word[k % 4];
      u.factor[0] = factor;
      set_nibble_scales<k>(tail, u);
      set_two_bit_values(join_halves(e0, e1), bits_from(kNibbles0To3, sign), u.w);
      set_two_bit_values(join_halves(e2, e3), bits_from(kNibbles4To7, sign), u.w + 4);
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
          factor(_mm512_mul_ps(low_half(load_word(at, 0)), spread_float(0.25f))),
          signs_and_scales{load_strip(at, 66), load_strip(at, 82)} {}
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 2 == 0) two = load_strip(rows, 2 + 8 * k);
      const Vec word = signs_and_scales[k / 4].word[k % 4];
      const Vec signs = even_signs<kParityOfBits0To6>(bits_from(kSevenBits, word));
      u.factor[0] = factor;
      u.scale[0] = odd_scale(_mm512_srli_epi32(word, 28));
      for (int half = 0; half < 2; ++half) {
        const Vec index = two.word[2 * (k % 2) + half];
        set_three_bit_values(lookup(kIq3XxsLow, index, 0), lookup(kIq3XxsHigh, index, 0),
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
      u.scale[0] = odd_scale(field<4 * k>(scales, 15));
      for (int half = 0; half < 2; ++half) {
        const Vec index = two.word[2 * (k % 2) + half];
        const auto ninth_bit = _mm512_test_epi8_mask(ninth, spread(half == 0 ? 0x08040201 : 0x80402010));
        set_three_bit_values(lookup(kIq3SLow, index, ninth_bit), lookup(kIq3SHigh, index, ninth_bit),
                             bits_from(half == 0 ? kNibbles0To3 : kNibbles4To7, sign), kIq3STable,
                             u.w + 4 * half);
      }
    }
  };
};

struct IQ1_S : LaneFormat<TensorType::kIQ1_S, 256, 50, ScalePer32, kIq1Offset, Order::kStride4> {
  struct Block {
    const Floats factor;
    const Strip low[2], high;
    explicit Block(const Rows& at)
        : factor(eighth(low_half(load_word(at, 0)))),
          low{load_strip(at, 2), load_strip(at, 18)},
          high(load_strip(at, 34)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      static constexpr ByteTable kShiftBit = lane_bit_starts(13, 13, 13, 13);  // bit 15 at bit 2
      const Vec index = low[k / 4].word[k % 4];
      const Vec h =
          field<16 * (k % 2)>(high.word[k / 2], 0xffff);  // 4 x 3 bits of index, 3 of scale, the shift
      const auto top = [&](Vec shifted) { return and_(shifted, spread(0x700)); };
      const Vec e0 = gather_codes<0>(kIq1Words, index, top(_mm512_slli_epi32(h, 8)));
      const Vec e1 = gather_codes<1>(kIq1Words, index, top(_mm512_slli_epi32(h, 5)));
      const Vec e2 = gather_codes<2>(kIq1Words, index, top(_mm512_slli_epi32(h, 2)));
      const Vec e3 = gather_codes<3>(kIq1Words, index, top(_mm512_srli_epi32(h, 1)));
      const Vec shifts = bits_from(kShiftBit, h);
      u.factor[0] = factor;
      u.scale[0] = odd_scale(field<12>(h, 7));
      set_ternary_values(join_halves(e0, e1), shifts, u.w);
      set_ternary_values(join_halves(e2, e3), shifts, u.w + 4);
    }
  };
};
struct IQ1_M : LaneFormat<TensorType::kIQ1_M, 256, 56, ScalePer16, kIq1Offset, Order::kStride4> {
  struct Block {
    const Strip low[2], high, tail;
    Floats factor;
    explicit Block(const Rows& at)
        : low{load_strip(at, 0), load_strip(at, 16)}, high(load_strip(at, 32)), tail(load_strip(at, 40)) {
      // d: the top nibbles of four 16-bit words
      const Vec a = tail.word[2], b = tail.word[3];
      const Vec d = or_(or_(field<12>(a, 0x000f), field<24>(a, 0x00f0)),
                        or_(_mm512_srli_epi32(and_(b, spread(0xf000)), 4), field<16>(b, 0xf000)));
      factor = eighth(low_half(d));
    }
    template <int k>
    void unit(Unit<Shape>& u) const {
      static constexpr ByteTable kShifts01 = lane_bit_starts(1, 1, 5, 5),
                                 kShifts23 = lane_bit_starts(9, 9, 13, 13);
      const Vec index = low[k / 4].word[k % 4];
      const Vec h =
          field<16 * (k % 2)>(high.word[k / 2], 0xffff);  // 3 bits of index and the shift, four times
      const auto top = [&](Vec shifted) { return and_(shifted, spread(0x700)); };
      const Vec e0 = gather_codes<0>(kIq1Words, index, top(_mm512_slli_epi32(h, 8)));
      const Vec e1 = gather_codes<1>(kIq1Words, index, top(_mm512_slli_epi32(h, 4)));
      const Vec e2 = gather_codes<2>(kIq1Words, index, top(h));
      const Vec e3 = gather_codes<3>(kIq1Words, index, top(_mm512_srli_epi32(h, 4)));
      // Two scales of 3 bits in each word's halves: groups 4i .. 4i+3 are in half i.
      const Vec scales = tail.word[2 + k / 4];
      constexpr int kFirstBit = 16 * (k / 2 % 2) + 6 * (k % 2);
      u.factor[0] = factor;
      u.scale[0] = odd_scale(field<kFirstBit>(scales, 7));
      u.scale[1] = odd_scale(field<kFirstBit + 3>(scales, 7));
      set_ternary_values(join_halves(e0, e1), bits_from(kShifts01, h), u.w);
      set_ternary_values(join_halves(e2, e3), bits_from(kShifts23, h), u.w + 4);
    }
  };
};

template <class... Formats>
struct LaneFormatList {};
using LaneFormats =
    LaneFormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS,
                   IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, MXFP4, NVFP4>;

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
