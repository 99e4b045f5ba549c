#pragma once
// Every weight type, one small struct each; the list at the end is the registry. Layouts follow the GGUF
// block formats, the meaning of the parts docs/numerics.md. A quantized type says:
//
//   values(block, k)    the 32 integers of unit k of a block; unless kSigned, they are 0..63 and kOffset more
//   than the weights
//                       (products of unsigned bytes are cheaper, and kOffset times the sum of the activations
//                       is exact)
//   Factor              where the block's float factor d_w is, and how it is written
//   kScaleGroup         0: none; 32 or 16: values sharing an integer scale, from scales(block)
//   Minimum             NoMinimum, or the float factor of the minimum; then kIntegerMinimum says whether it
//   is subtracted with an integer
//                       multiplier per scale group, from minimums(block), or added as it is
//
// In the variant's own namespace, see variant.h.

#include "services/gguf/tensor_type.h"
#include "services/quant/code_book_entries.h"
#include "services/quant/float_vec.h"
#include "services/quant/half.h"
#include "services/quant/simd.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using gguf::TensorType;

// Up to 16 integers of a block, one signed byte each: group g is byte g.
struct PackedScales {
  uint64_t word[2] = {0, 0};
};

// ---- where a float factor is

// A binary16 number, divided by a power of two (exactly: binary32 has room below).
template <uint16_t (*kBits)(const uint8_t* block), int kDivisor>
struct HalfFactor {
  static constexpr float kMultiplier = 1.0f / kDivisor;
  static float one(const uint8_t* block, int /*group*/) { return half_to_float(kBits(block)) * kMultiplier; }
  static Floats8 lanes(const uint8_t* const (&blocks)[8], int /*group*/) {
    uint16_t h[8];
    for (int row = 0; row < 8; ++row) h[row] = kBits(blocks[row]);
    const Floats8 f = halfs_to_floats(h);
    if constexpr (kDivisor == 1) return f;
    return times(f, spread_float(kMultiplier));
  }
};

template <int kOffset>
inline uint16_t u16_at(const uint8_t* block) {
  return load_u16(block + kOffset);
}
template <int kOffset, int kDivisor = 1>
using HalfAt = HalfFactor<u16_at<kOffset>, kDivisor>;

// IQ1_M: a nibble in the top of each of its last four 16-bit words.
inline uint16_t top_nibbles(const uint8_t* block) {
  const uint64_t words = load_as<uint64_t>(block + 48);
  return static_cast<uint16_t>((words >> 12 & 0xf) | (words >> 24 & 0xf0) | (words >> 36 & 0xf00) |
                               (words >> 48 & 0xf000));
}

// A byte per `groups`, converted by kConvert.
template <float (*kConvert)(uint8_t)>
struct ByteFactor {
  static float one(const uint8_t* block, int group) { return kConvert(block[group]); }
  static Floats8 lanes(const uint8_t* const (&blocks)[8], int group) {
    float f[8];
    for (int row = 0; row < 8; ++row) f[row] = kConvert(blocks[row][group]);
    return load_floats(f);
  }
};

struct NoMinimum {};

// ---- common parts

template <TensorType type, int values, int bytes>
struct QuantizedFormat {
  static constexpr TensorType kType = type;
  static constexpr int kBlockValues = values;
  static constexpr int kBlockBytes = bytes;
  static constexpr int kUnits = values / 32;
  static constexpr bool kSigned = false;
  static constexpr int kOffset = 0;
  static constexpr int kScaleGroup = 0;
  static constexpr bool kFactorPer16 = false;  // the float factor changes every 16 values
  static constexpr bool kIntegerMinimum = false;
  using Minimum = NoMinimum;
};

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// ---- blocks of 32

struct Q4_0 : QuantizedFormat<TensorType::kQ4_0, 32, 18> {
  static constexpr int kOffset = 8;
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int) { return nibbles(b + 2); }
};
struct Q4_1 : QuantizedFormat<TensorType::kQ4_1, 32, 20> {
  using Factor = HalfAt<0>;
  using Minimum = HalfAt<2>;
  static Bytes32 values(const uint8_t* b, int) { return nibbles(b + 4); }
};
struct Q5_0 : QuantizedFormat<TensorType::kQ5_0, 32, 22> {
  static constexpr int kOffset = 16;
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int) { return either(nibbles(b + 6), spread(load_u32(b + 2), 16)); }
};
struct Q5_1 : QuantizedFormat<TensorType::kQ5_1, 32, 24> {
  using Factor = HalfAt<0>;
  using Minimum = HalfAt<2>;
  static Bytes32 values(const uint8_t* b, int) { return either(nibbles(b + 8), spread(load_u32(b + 4), 16)); }
};
struct Q8_0 : QuantizedFormat<TensorType::kQ8_0, 32, 34> {
  static constexpr bool kSigned = true;
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int) { return load32(b + 2); }
};
struct IQ4_NL : QuantizedFormat<TensorType::kIQ4_NL, 32, 18> {
  static constexpr bool kSigned = true;
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int) { return lookup(kIq4Values, nibbles(b + 2)); }
};
struct MXFP4 : QuantizedFormat<TensorType::kMXFP4, 32, 17> {
  static constexpr bool kSigned = true;
  using Factor = ByteFactor<e8m0_to_float>;
  static Bytes32 values(const uint8_t* b, int) { return lookup(kFp4Values, nibbles(b + 1)); }
};

// ---- blocks of 64

struct Q2_0 : QuantizedFormat<TensorType::kQ2_0, 64, 18> {
  static constexpr int kOffset = 1;
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int k) { return crumbs(b + 2 + 8 * k); }
};
struct NVFP4 : QuantizedFormat<TensorType::kNVFP4, 64, 36> {
  static constexpr bool kSigned = true;
  static constexpr bool kFactorPer16 = true;
  using Factor = ByteFactor<half_e4m3_to_float>;
  static Bytes32 values(const uint8_t* b, int k) { return lookup(kFp4Values, nibbles_by_8(b + 4 + 16 * k)); }
};

// ---- blocks of 256

struct Q2_K : QuantizedFormat<TensorType::kQ2_K, 256, 84> {
  static constexpr int kScaleGroup = 16;
  static constexpr bool kIntegerMinimum = true;
  using Factor = HalfAt<80>;
  using Minimum = HalfAt<82>;
  static Bytes32 values(const uint8_t* b, int k) {
    return bits(load32(b + 16 + 32 * (k / 4)), 2 * (k % 4), 3);
  }
  static PackedScales scales(const uint8_t* b) {
    return {{load_as<uint64_t>(b) & kLow, load_as<uint64_t>(b + 8) & kLow}};
  }
  static PackedScales minimums(const uint8_t* b) {
    return {{(load_as<uint64_t>(b) >> 4) & kLow, (load_as<uint64_t>(b + 8) >> 4) & kLow}};
  }
  static constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
};
struct Q3_K : QuantizedFormat<TensorType::kQ3_K, 256, 110> {
  static constexpr int kOffset = 4;
  static constexpr int kScaleGroup = 16;
  using Factor = HalfAt<108>;
  static Bytes32 values(const uint8_t* b, int k) {
    const Bytes32 low = bits(load32(b + 32 + 32 * (k / 4)), 2 * (k % 4), 3);
    return either(low, shift_up(bits(load32(b), k, 1), 2));
  }
  static PackedScales scales(const uint8_t* b) {
    PackedScales r;
    for (int g = 0; g < 16; ++g) {
      const int low = (b[96 + g % 8] >> (4 * (g / 8))) & 15;
      const int high = (b[104 + g % 4] >> (2 * (g / 4))) & 3;
      r.word[g / 8] |= uint64_t{static_cast<uint8_t>(low + 16 * high - 32)} << (8 * (g % 8));
    }
    return r;
  }
};

// The 6-bit scales and minimums of Q4_K and Q5_K: twelve bytes; groups 0-3 whole, the upper two bits of 4-7
// on top of them.
template <TensorType type, int bytes>
struct SixBitScales : QuantizedFormat<type, 256, bytes> {
  static constexpr int kScaleGroup = 32;
  static constexpr bool kIntegerMinimum = true;
  using Factor = HalfAt<0>;
  using Minimum = HalfAt<2>;
  static PackedScales scales(const uint8_t* b) {
    const uint32_t a = load_u32(b + 4), c = load_u32(b + 12);
    return joined(a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u));
  }
  static PackedScales minimums(const uint8_t* b) {
    const uint32_t a = load_u32(b + 8), c = load_u32(b + 12);
    return joined(a & 0x3f3f3f3fu, ((c >> 4) & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u));
  }

 private:
  static PackedScales joined(uint32_t low, uint32_t high) {
    return {{uint64_t{low} | uint64_t{high} << 32, 0}};
  }
};
struct Q4_K : SixBitScales<TensorType::kQ4_K, 144> {
  static Bytes32 values(const uint8_t* b, int k) {
    return bits(load32(b + 16 + 32 * (k / 2)), 4 * (k % 2), 15);
  }
};
struct Q5_K : SixBitScales<TensorType::kQ5_K, 176> {
  static Bytes32 values(const uint8_t* b, int k) {
    const Bytes32 low = bits(load32(b + 48 + 32 * (k / 2)), 4 * (k % 2), 15);
    return either(low, shift_up(bits(load32(b + 16), k, 1), 4));
  }
};
struct Q6_K : QuantizedFormat<TensorType::kQ6_K, 256, 210> {
  static constexpr int kOffset = 32;
  static constexpr int kScaleGroup = 16;
  using Factor = HalfAt<208>;
  static Bytes32 values(const uint8_t* b, int k) {
    const int half = k / 4, j = k % 4;
    const Bytes32 low = bits(load32(b + 64 * half + 32 * (j % 2)), 4 * (j / 2), 15);
    const Bytes32 high = bits(load32(b + 128 + 32 * half), 2 * j, 3);
    return either(low, shift_up(high, 4));
  }
  static PackedScales scales(const uint8_t* b) {
    return {{load_as<uint64_t>(b + 192), load_as<uint64_t>(b + 200)}};
  }
};
struct IQ4_XS : QuantizedFormat<TensorType::kIQ4_XS, 256, 136> {
  static constexpr bool kSigned = true;
  static constexpr int kScaleGroup = 32;
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int k) { return lookup(kIq4Values, nibbles(b + 8 + 16 * k)); }
  static PackedScales scales(const uint8_t* b) {
    PackedScales r;
    for (int g = 0; g < 8; ++g) {
      const int low = (b[4 + g / 2] >> (4 * (g % 2))) & 15;
      const int high = (load_u16(b + 2) >> (2 * g)) & 3;
      r.word[0] |= uint64_t{static_cast<uint8_t>(low + 16 * high - 32)} << (8 * g);
    }
    return r;
  }
};

// ---- code book types, blocks of 256: entries of 8 or 4 magnitudes, signs beside them

// Four 7-bit sign codes, each completed by a parity bit: 32 signs, that of value i in bit i.
inline uint32_t even_signs(uint32_t codes) {
  const uint32_t sevens =
      (codes & 0x7fu) | (codes << 1 & 0x7f00u) | (codes << 2 & 0x7f0000u) | (codes << 3 & 0x7f000000u);
  uint32_t parity = sevens ^ (sevens << 4 & 0xf0f0f0f0u);
  parity ^= parity << 2 & 0xc0c0c0c0u;
  parity ^= parity << 1 & 0x80808080u;
  return sevens | (parity & 0x80808080u);
}
// Integer scales of these types are odd: 2 s + 1, from 8 or 16 neighbouring nibbles or 3-bit numbers.
inline uint64_t odd_scales(uint64_t s) { return (s << 1) + 0x0101010101010101u; }
// 4 bytes -> their 8 nibbles, low ones first
inline uint64_t nibbles_of(uint32_t packed) {
  uint64_t spread = packed;
  spread = (spread | spread << 16) & 0x0000ffff0000ffffu;
  spread = (spread | spread << 8) & 0x00ff00ff00ff00ffu;
  return (spread | spread << 4) & 0x0f0f0f0f0f0f0f0fu;
}
inline PackedScales sixteen_odd_scales(const uint8_t* nibbles) {
  return {{odd_scales(nibbles_of(load_u32(nibbles))), odd_scales(nibbles_of(load_u32(nibbles + 4)))}};
}

template <TensorType type, int bytes, int scale_group>
struct SignedCodeBook : QuantizedFormat<type, 256, bytes> {
  static constexpr bool kSigned = true;
  static constexpr int kScaleGroup = scale_group;
};

struct IQ2_XXS : SignedCodeBook<TensorType::kIQ2_XXS, 66, 32> {
  using Factor = HalfAt<0, 8>;
  static Bytes32 values(const uint8_t* b, int k) {
    const uint8_t* index = b + 2 + 8 * k;
    return negate_where(entries8(kIq2XxsEntries, index[0], index[1], index[2], index[3]),
                        even_signs(load_u32(index + 4)));
  }
  static PackedScales scales(const uint8_t* b) {
    uint64_t s = 0;
    for (int k = 0; k < 8; ++k) s |= uint64_t{load_u32(b + 6 + 8 * k) >> 28} << (8 * k);
    return {{odd_scales(s), 0}};
  }
};
struct IQ2_XS : SignedCodeBook<TensorType::kIQ2_XS, 74, 16> {
  using Factor = HalfAt<0, 8>;
  static Bytes32 values(const uint8_t* b, int k) {
    uint32_t q[4], codes = 0;
    for (int i = 0; i < 4; ++i) {
      q[i] = load_u16(b + 2 + 8 * k + 2 * i);
      codes |= q[i] >> 9 << (7 * i);
    }
    return negate_where(entries8(kIq2XsEntries, q[0] & 511, q[1] & 511, q[2] & 511, q[3] & 511),
                        even_signs(codes));
  }
  static PackedScales scales(const uint8_t* b) { return sixteen_odd_scales(b + 66); }
};
struct IQ2_S : SignedCodeBook<TensorType::kIQ2_S, 82, 16> {
  using Factor = HalfAt<0, 8>;
  static Bytes32 values(const uint8_t* b, int k) {
    const uint8_t* index = b + 2 + 4 * k;
    const uint32_t high = uint32_t{b[66 + k]} << 8;
    return negate_where(entries8(kIq2SEntries, index[0] | (high & 0x300), index[1] | (high >> 2 & 0x300),
                                 index[2] | (high >> 4 & 0x300), index[3] | (high >> 6 & 0x300)),
                        load_u32(b + 34 + 4 * k));
  }
  static PackedScales scales(const uint8_t* b) { return sixteen_odd_scales(b + 74); }
};
struct IQ3_XXS : SignedCodeBook<TensorType::kIQ3_XXS, 98, 32> {
  using Factor = HalfAt<0, 4>;
  static Bytes32 values(const uint8_t* b, int k) {
    uint32_t index[8];
    for (int i = 0; i < 8; ++i) index[i] = b[2 + 8 * k + i];
    return negate_where(entries4(kIq3XxsEntries, index), even_signs(load_u32(b + 66 + 4 * k)));
  }
  static PackedScales scales(const uint8_t* b) {
    uint64_t s = 0;
    for (int k = 0; k < 8; ++k) s |= uint64_t{load_u32(b + 66 + 4 * k) >> 28} << (8 * k);
    return {{odd_scales(s), 0}};
  }
};
struct IQ3_S : SignedCodeBook<TensorType::kIQ3_S, 110, 32> {
  using Factor = HalfAt<0>;
  static Bytes32 values(const uint8_t* b, int k) {
    uint32_t index[8];
    const uint32_t high = b[66 + k];
    for (int i = 0; i < 8; ++i) index[i] = b[2 + 8 * k + i] | (high << (8 - i) & 0x100);
    return negate_where(entries4(kIq3SEntries, index), load_u32(b + 74 + 4 * k));
  }
  static PackedScales scales(const uint8_t* b) { return {{odd_scales(nibbles_of(load_u32(b + 106))), 0}}; }
};

// The IQ1 weights 8 g +- 1, g in -1..1, are kept as 8 (g + 1) from the code book, plus 2 where it is + 1.
template <TensorType type, int bytes, int scale_group>
struct TernaryCodeBook : QuantizedFormat<type, 256, bytes> {
  static constexpr int kOffset = 9;
  static constexpr int kScaleGroup = scale_group;
};
struct IQ1_S : TernaryCodeBook<TensorType::kIQ1_S, 50, 32> {
  using Factor = HalfAt<0, 8>;
  static Bytes32 values(const uint8_t* b, int k) {
    const uint8_t* index = b + 2 + 4 * k;
    const uint32_t h = load_u16(b + 34 + 2 * k);
    return either(entries8(kIq1Entries, index[0] | (h << 8 & 0x700), index[1] | (h << 5 & 0x700),
                           index[2] | (h << 2 & 0x700), index[3] | (h >> 1 & 0x700)),
                  spread((h >> 15) - 1, 2));
  }
  static PackedScales scales(const uint8_t* b) {
    uint64_t s = 0;
    for (int k = 0; k < 8; ++k) s |= uint64_t{load_u16(b + 34 + 2 * k) >> 12 & 7u} << (8 * k);
    return {{odd_scales(s), 0}};
  }
};
struct IQ1_M : TernaryCodeBook<TensorType::kIQ1_M, 56, 16> {
  using Factor = HalfFactor<top_nibbles, 8>;
  static Bytes32 values(const uint8_t* b, int k) {
    const uint8_t* index = b + 4 * k;
    const uint32_t h = load_u16(b + 32 + 2 * k);
    // Bits 3, 7, 11, 15 of h: the shift of 8 values is -1 where set.
    const uint32_t up = ~h;
    const uint32_t plus = (up >> 3 & 1) | (up << 1 & 0x100) | (up << 5 & 0x10000) | (up << 9 & 0x1000000);
    return either(entries8(kIq1Entries, index[0] | (h << 8 & 0x700), index[1] | (h << 4 & 0x700),
                           index[2] | (h & 0x700), index[3] | (h >> 4 & 0x700)),
                  spread(plus * 0xff, 2));
  }
  static PackedScales scales(const uint8_t* b) {
    PackedScales r;
    for (int g = 0; g < 16; ++g) {
      const uint64_t s = load_u16(b + 48 + 2 * (g / 4)) >> (3 * (g % 4)) & 7u;
      r.word[g / 8] |= s << (8 * (g % 8));
    }
    return {{odd_scales(r.word[0]), odd_scales(r.word[1])}};
  }
};

// ---- float types: load() gives kFloatWidth neighbouring values as float32, one() a single one

struct F32 {
  static constexpr TensorType kType = TensorType::kF32;
  static constexpr int kValueBytes = 4;
  static FloatVec load(const std::byte* p) { return load_vec(p); }
  static float one(const std::byte* p) { return load_as<float>(p); }
};
struct F16 {
  static constexpr TensorType kType = TensorType::kF16;
  static constexpr int kValueBytes = 2;
  static FloatVec load(const std::byte* p) { return load_halfs(p); }
  static float one(const std::byte* p) { return half_to_float(load_u16(p)); }
};
struct BF16 {
  static constexpr TensorType kType = TensorType::kBF16;
  static constexpr int kValueBytes = 2;
  static FloatVec load(const std::byte* p) { return load_bf16(p); }
  static float one(const std::byte* p) { return bf16_to_float(load_u16(p)); }
};

// ---- the registry

template <class... Formats>
struct FormatList {};
using QuantizedFormats =
    FormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS,
               IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, MXFP4, NVFP4>;
using FloatFormats = FormatList<F32, F16, BF16>;

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
