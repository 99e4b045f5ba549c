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
#include "services/quant/half.h"
#include "services/quant/simd.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using gguf::TensorType;

// Up to 16 integers of a block, one signed byte each: group g is byte g.
struct PackedScales {
  uint64_t word[2] = {0, 0};
};

// ---- where a float factor is

template <int kOffset>
struct HalfAt {
  static float one(const uint8_t* block, int /*group*/) { return half_to_float(load_u16(block + kOffset)); }
  static Floats8 lanes(const uint8_t* const (&blocks)[8], int /*group*/) {
    uint16_t h[8];
    for (int row = 0; row < 8; ++row) h[row] = load_u16(blocks[row] + kOffset);
    return halfs_to_floats(h);
  }
};

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

// ---- float types: load() gives 8 neighbouring values as float32, one() a single one

struct F32 {
  static constexpr TensorType kType = TensorType::kF32;
  static constexpr int kValueBytes = 4;
  static Floats8 load(const std::byte* p) { return load_floats(p); }
  static float one(const std::byte* p) { return load_as<float>(p); }
};
struct F16 {
  static constexpr TensorType kType = TensorType::kF16;
  static constexpr int kValueBytes = 2;
  static Floats8 load(const std::byte* p) { return load_halfs(p); }
  static float one(const std::byte* p) { return half_to_float(load_u16(p)); }
};
struct BF16 {
  static constexpr TensorType kType = TensorType::kBF16;
  static constexpr int kValueBytes = 2;
  static Floats8 load(const std::byte* p) { return load_bf16(p); }
  static float one(const std::byte* p) { return bf16_to_float(load_u16(p)); }
};

// ---- the registry

template <class... Formats>
struct FormatList {};
using QuantizedFormats = FormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
                                    IQ4_XS, MXFP4, NVFP4>;
using FloatFormats = FormatList<F32, F16, BF16>;

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
