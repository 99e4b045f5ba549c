#pragma once
// Quantized types by lanes: how the blocks of kRows rows become units. A unit is 32 values of each row: bytes
// w[0..7], where byte m of w[j] in lane r is the integer of row r's value kOrder(j, m), plus kOffset, which
// makes it 0..kMax (or kMax is 0: signed); and the scales of docs/numerics.md. The expressions of those, and
// what the parts of a block mean, are there.
//
// A format is a struct of
//   Shape          which scales a unit has
//   kOffset, kMax  what is added to the weights, the largest that they are then
//   kOrder         which activations w[j] meets
//   Block          reads the parts of kRows blocks; unit<k>(u) makes unit k, in ascending order of k

#include "services/gguf/tensor_type.h"
#include "services/quant/simd_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using gguf::TensorType;

enum class Order : uint8_t {
  kNatural,  // w[j]: values 4j .. 4j+3
  kStride4,  // w[j], w[j+4] for j < 4: values j, j+4, j+8, j+12 of the first and last 16
};
enum class MinimumKind : uint8_t { kNone, kFloat, kInteger };

// kGroup: values that share an integer scale, 0 if there is none. kFactorPer16: a float factor of each half
// instead. kMinusTwo: the weights are smaller by 2 in halves of
// the values that a dot product is of, differently between rows.
template <int kGroup, MinimumKind kMinimumKind = MinimumKind::kNone, bool kFactorPer16 = false,
          bool kMinusTwo = false>
struct UnitShape {
  static constexpr bool kScaled = kGroup != 0;
  static constexpr bool kHalves = kGroup == 16 || kFactorPer16;  // two dot products, of 16 values each
  static constexpr bool kFactors = kFactorPer16;
  static constexpr bool kMinus = kMinusTwo;
  static constexpr MinimumKind kMinimum = kMinimumKind;
};

// Units of kRows rows. What the shape lacks stays unset.
template <class S>
struct Unit {
  using Shape = S;
  Vec w[8];
  Vec minus[S::kHalves ? 2 : 1];  // 16-bit integers: how often 2 is to be taken off each half of what a dot
                                  // product is of
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
  static constexpr int kMax = 255;  // a smaller one helps where dot products are not wide
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

inline Vec low_nibbles(Vec a) { return and_(a, spread(0x0f0f0f0f)); }

// Low nibbles of 16 bytes, then the high ones.
inline void set_nibbles(const Strip& s, Vec (&w)[8]) {
  for (int j = 0; j < 4; ++j) {
    w[j] = low_nibbles(s.word[j]);
    w[j + 4] = low_nibbles(shift16<4>(s.word[j]));
  }
}
// The same through a table.
inline void set_nibbles(const Strip& s, const NibbleTable& table, Vec (&w)[8]) {
  for (int j = 0; j < 4; ++j) {
    w[j] = lookup_nibbles(table, s.word[j]);
    w[j + 4] = lookup_nibbles(table, shift16<4>(s.word[j]));
  }
}
// Weights beyond 127 are unsigned where dot products take them, else signed.
inline constexpr int kIq4Offset = kWideDots ? 127 : 0;
inline constexpr int kIq4Max = kWideDots ? 240 : 0;
inline constexpr NibbleTable kIq4Table =
    nibble_table({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}, kIq4Offset);
inline constexpr int kFp4Offset = 12;
inline constexpr NibbleTable kFp4Table =
    nibble_table({0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}, kFp4Offset);

// ---- blocks of 32

struct Q4_0 : LaneFormat<TensorType::kQ4_0, 32, 18, NoScale, 8> {
  static constexpr int kMax = 15;
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
  static constexpr int kMax = 15;
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
  static constexpr int kMax = 31;
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
  static constexpr int kMax = 31;
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
struct Q8_0 : LaneFormat<TensorType::kQ8_0, 32, 34, NoScale, kWideDots ? 128 : 0> {
  static constexpr int kMax = kWideDots ? 255 : 0;
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = low_half(load_word(rows, 0));
      const Strip first = load_strip(rows, 2), last = load_strip(rows, 18);
      for (int j = 0; j < 4; ++j) {
        u.w[j] = kWideDots ? xor_(first.word[j], spread(0x80808080)) : first.word[j];
        u.w[j + 4] = kWideDots ? xor_(last.word[j], spread(0x80808080)) : last.word[j];
      }
    }
  };
};
struct IQ4_NL : LaneFormat<TensorType::kIQ4_NL, 32, 18, NoScale, kIq4Offset> {
  static constexpr int kMax = kIq4Max;
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
  static constexpr int kMax = 24;
  struct Block {
    const Rows rows;
    explicit Block(const Rows& at) : rows(at) {}
    template <int>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = e8m0_lanes(and_(load_word(rows, 0), spread(255)));
      set_nibbles(load_strip(rows, 1), kFp4Table, u.w);
    }
  };
};

// ---- blocks of 64

struct Q2_0 : LaneFormat<TensorType::kQ2_0, 64, 18, NoScale, 1, Order::kStride4> {
  static constexpr int kMax = 3;
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
  static constexpr int kMax = 24;
  struct Block {
    const Rows rows;
    const Vec scales;
    explicit Block(const Rows& at) : rows(at), scales(load_word(at, 0)) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = half_e4m3_lanes(field<16 * k>(scales, 255));
      u.factor[1] = half_e4m3_lanes(field<16 * k + 8>(scales, 255));
      const Strip s = load_strip(rows, 4 + 16 * k);
      for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < 2; ++j) {
          u.w[4 * half + j] = lookup_nibbles(kFp4Table, s.word[2 * half + j]);
          u.w[4 * half + j + 2] = lookup_nibbles(kFp4Table, shift16<4>(s.word[2 * half + j]));
        }
      }
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
  static constexpr int kMax = 3;
  struct Block {
    const Rows rows;
    const Strip scales;
    const Vec factors;
    const Floats factor, minimum_factor;
    Strip first, last;  // of the present 128 values
    explicit Block(const Rows& at)
        : rows(at),
          scales(load_strip(at, 0)),
          factors(load_word(at, 80)),
          factor(low_half(factors)),
          minimum_factor(negative(high_half(factors))) {}
    // Before unit k.
    template <int k>
    void load_values() {
      if constexpr (k % 4 == 0) {
        first = load_strip(rows, 16 + 8 * k);
        last = load_strip(rows, 32 + 8 * k);
      }
    }
    template <int k>
    void unit(Unit<Shape>& u) {
      load_values<k>();
      u.factor[0] = factor;
      u.minimum_factor = minimum_factor;
      for (int half = 0; half < 2; ++half) {
        const Vec both = scale_byte<k>(scales.word, half, 255);
        u.scale[half] = to_floats(field<0>(both, 15));
        u.minimum[half] = to_floats(shift32<4>(both));
      }
      for (int j = 0; j < 4; ++j) {
        u.w[j] = and_(shift16<2 * (k % 4)>(first.word[j]), spread(0x03030303));
        u.w[j + 4] = and_(shift16<2 * (k % 4)>(last.word[j]), spread(0x03030303));
      }
    }
  };
};
struct Q3_K : LaneFormat<TensorType::kQ3_K, 256, 110, ScalePer16, 4> {
  static constexpr int kMax = 7;
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
        return or_(shift32<16>(tail.word[i]), shift32<-16>(tail.word[i + 1]));
      };
      const Vec low0 = from_third_byte(0), low1 = from_third_byte(1), high = from_third_byte(2);
      factor = high_half(tail.word[3]);
      const Vec upper = spread(0x30303030);
      scales[0] = or_(low_nibbles(low0), and_(shift32<-4>(high), upper));
      scales[1] = or_(low_nibbles(low1), and_(shift32<-2>(high), upper));
      scales[2] = or_(low_nibbles(shift16<4>(low0)), and_(high, upper));
      scales[3] = or_(low_nibbles(shift16<4>(low1)), and_(shift32<2>(high), upper));
    }
    template <int k>
    void unit(Unit<Shape>& u) {
      if constexpr (k % 4 == 0) {
        first = load_strip(rows, 32 + 8 * k);
        last = load_strip(rows, 48 + 8 * k);
      }
      u.factor[0] = factor;
      for (int half = 0; half < 2; ++half)
        u.scale[half] = to_floats(minus32(scale_byte<k>(scales, half, 255), spread(32)));
      const auto three_bits = [](Vec low, Vec high) {
        const Vec third = shift16<k - 2>(high);
        return join(third, 0x04040404, shift16<2 * (k % 4)>(low), 0x03030303);
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
    scales[1] = or_(low_nibbles(c), and_(shift32<2>(a), upper));
    minimums[1] = or_(low_nibbles(shift16<4>(c)), and_(shift32<2>(b), upper));
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
  static constexpr int kMax = 15;
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
  static constexpr int kMax = 31;
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
        return join(fifth, 0x10101010, shift16<4 * (k % 2)>(low), 0x0f0f0f0f);
      };
      for (int j = 0; j < 4; ++j) {
        u.w[j] = five_bits(first.word[j], high_first.word[j]);
        u.w[j + 4] = five_bits(last.word[j], high_last.word[j]);
      }
    }
  };
};
struct Q6_K : LaneFormat<TensorType::kQ6_K, 256, 210, ScalePer16, 32> {
  static constexpr int kMax = 63;
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
      u.scale[0] = to_floats(signed_byte<16 * (k % 2)>(scales.word[k / 2]));
      u.scale[1] = to_floats(signed_byte<16 * (k % 2) + 8>(scales.word[k / 2]));
      const auto six_bits = [](Vec four, Vec two) {
        return join(shift16<2 * j - 4>(two), 0x30303030, shift16<4 * (j / 2)>(four), 0x0f0f0f0f);
      };
      for (int i = 0; i < 4; ++i) {
        u.w[i] = six_bits(low[2 * (j % 2)].word[i], high[0].word[i]);
        u.w[i + 4] = six_bits(low[2 * (j % 2) + 1].word[i], high[1].word[i]);
      }
    }
  };
};
struct IQ4_XS : LaneFormat<TensorType::kIQ4_XS, 256, 136, ScalePer32, kIq4Offset> {
  static constexpr int kMax = kIq4Max;
  struct Block {
    const Rows rows;
    const Strip head;
    const Floats factor;
    explicit Block(const Rows& at) : rows(at), head(load_strip(at, 0)), factor(low_half(head.word[0])) {}
    template <int k>
    void unit(Unit<Shape>& u) const {
      u.factor[0] = factor;
      const Vec high = shift32<-4>(field<16 + 2 * k>(head.word[0], 3));
      u.scale[0] = to_floats(minus32(or_(field<4 * k>(head.word[1], 15), high), spread(32)));
      set_nibbles(load_strip(rows, 8 + 16 * k), kIq4Table, u.w);
    }
  };
};

// ---- parts of the code book types

inline Floats eighth(Floats a) { return mul(a, spread_lanes(0.125f)); }
// The binary16 number whose nibbles are the top ones of four 16-bit words, two in each of `a` and `b`: d of
// IQ1_M.
inline Floats spread_out_half(Vec a, Vec b) {
  return low_half(or_(join(shift32<12>(a), 0x000f, shift32<24>(a), 0x00f0),
                      join(shift32<4>(b), 0x0f00, shift32<16>(b), 0xf000)));
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
