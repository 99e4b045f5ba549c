#pragma once
// Every weight type for kernels, one small struct each; the list at the end is the registry. Layouts follow
// the GGUF block formats, the meaning of the parts docs/numerics.md. Blocks may lie in global or shared
// memory, at multiples of kAlign. A quantized type says:
//
//   raw(block, k, w)       the 32 integers of unit k in their order, as bytes, kOffset more than the weights;
//                          signed if kOffset is 0
//   columns(block, k, w)   if kHasColumns: the same in the order in which they are cheaper. w[c], w[4 + c]
//                          (c = 0..3) hold values c, c + 4, c + 8, c + 12 of the first and last 16
//   pair(block, ...)       if kHasPair (blocks of 32): w of two blocks that follow each other, and their d_w,
//   with
//                          each word loaded once
//   factor(block, half)    d_w of half a unit: half = 2 k or 2 k + 1 (they differ for kFactorPer16 only)
//   kScaleGroup            0, or how many values (16 or 32) share the integer scale(block, group)
//   kScalesFitBytes        for groups of 16: a weight times its scale, both without sign, is below 128
//   kMinimum               whether there is a minimum: minimum_factor(block), which is added (so negative
//                          where the format subtracts), times minimum(block, group) if kIntegerMinimum

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/formats_bytes.cuh"

namespace strata::gpu_worker::cuda {

template <TensorType type, int values, int bytes>
struct QuantizedFormat {
  static constexpr TensorType kType = type;
  static constexpr int kBlockValues = values;
  static constexpr int kBlockBytes = bytes;
  static constexpr int kUnits = values / 32;
  static constexpr int kAlign = bytes % 4 == 0 ? 4 : bytes % 2 == 0 ? 2 : 1;
  static constexpr int kOffset = 0;
  static constexpr bool kHasColumns = false;
  static constexpr bool kHasPair = false;
  static constexpr int kScaleGroup = 0;
  static constexpr bool kScalesFitBytes = false;
  static constexpr bool kFactorPer16 = false;
  static constexpr bool kMinimum = false;
  static constexpr bool kIntegerMinimum = false;

  __device__ static float factor(const uint8_t* b, int /*half*/) { return load_half(b); }
  __device__ static int scale(const uint8_t* /*b*/, int /*group*/) { return 1; }
  __device__ static float minimum_factor(const uint8_t* /*b*/) { return 0.0f; }
  __device__ static int minimum(const uint8_t* /*b*/, int /*group*/) { return 1; }
};

// ---- blocks of 32

struct Q4_0 : QuantizedFormat<TensorType::kQ4_0, 32, 18> {
  static constexpr int kOffset = 8;
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) {
    uint32_t packed[4];
    load_words<kAlign>(b + 2, packed);
    spread_nibbles(packed, w);
  }
  static constexpr bool kHasPair = true;
  __device__ static void pair(const uint8_t* b, uint32_t (&first)[8], uint32_t (&last)[8], float (&d)[2]) {
    uint32_t words[9];
    load_mostly_aligned(b, words);
    d[0] = low_half(words[0]);
    d[1] = high_half(words[4]);
    uint32_t packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) packed[j] = __byte_perm(words[j], words[j + 1], 0x5432);
    spread_nibbles(packed, first);
    spread_nibbles({words[5], words[6], words[7], words[8]}, last);
  }
};
struct Q4_1 : QuantizedFormat<TensorType::kQ4_1, 32, 20> {
  static constexpr bool kMinimum = true;
  __device__ static float minimum_factor(const uint8_t* b) { return load_half(b + 2); }
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) {
    uint32_t packed[4];
    load_words<kAlign>(b + 4, packed);
    spread_nibbles(packed, w);
  }
};
// Four bits of each value, then the fifth ones in a word before them.
template <int kAlign>
__device__ inline void load_five_bits(const uint8_t* fifths, uint32_t (&w)[8]) {
  uint32_t words[5];
  load_words<kAlign>(fifths, words);
  spread_nibbles({words[1], words[2], words[3], words[4]}, w);
#pragma unroll
  for (int j = 0; j < 8; ++j) w[j] |= bits_to_bytes(words[0], 4 * j) << 4;
}
struct Q5_0 : QuantizedFormat<TensorType::kQ5_0, 32, 22> {
  static constexpr int kOffset = 16;
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) {
    load_five_bits<kAlign>(b + 2, w);
  }
};
struct Q5_1 : QuantizedFormat<TensorType::kQ5_1, 32, 24> {
  static constexpr bool kMinimum = true;
  __device__ static float minimum_factor(const uint8_t* b) { return load_half(b + 2); }
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) {
    load_five_bits<kAlign>(b + 4, w);
  }
};
struct Q8_0 : QuantizedFormat<TensorType::kQ8_0, 32, 34> {
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) { load_words<kAlign>(b + 2, w); }
  static constexpr bool kHasPair = true;
  __device__ static void pair(const uint8_t* b, uint32_t (&first)[8], uint32_t (&last)[8], float (&d)[2]) {
    uint32_t words[17];
    load_mostly_aligned(b, words);
    d[0] = low_half(words[0]);
    d[1] = high_half(words[8]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      first[j] = __byte_perm(words[j], words[j + 1], 0x5432);
      last[j] = words[9 + j];
    }
  }
};
// 16 bytes whose nibbles choose from a table.
template <class Table, int kAlign>
__device__ inline void load_looked_up(const uint8_t* p, uint32_t (&w)[8]) {
  uint32_t packed[4];
  load_words<kAlign>(p, packed);
#pragma unroll
  for (int j = 0; j < 4; ++j) Table::eight(packed[j], w[j], w[j + 4]);
}
struct IQ4_NL : QuantizedFormat<TensorType::kIQ4_NL, 32, 18> {
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) {
    load_looked_up<Iq4Table, kAlign>(b + 2, w);
  }
};
struct MXFP4 : QuantizedFormat<TensorType::kMXFP4, 32, 17> {
  __device__ static float factor(const uint8_t* b, int /*half*/) { return e8m0_to_float(b[0]); }
  __device__ static void raw(const uint8_t* b, int /*k*/, uint32_t (&w)[8]) {
    load_looked_up<Fp4Table, kAlign>(b + 1, w);
  }
};

// ---- blocks of 64

struct Q2_0 : QuantizedFormat<TensorType::kQ2_0, 64, 18> {
  static constexpr int kOffset = 1;
  static constexpr bool kHasColumns = true;
  __device__ static void columns(const uint8_t* b, int k, uint32_t (&w)[8]) {
    uint32_t packed[2];
    load_words<kAlign>(b + 2 + 8 * k, packed);
#pragma unroll
    for (int j = 0; j < 8; ++j) w[j] = packed[j / 4] >> (2 * (j % 4)) & 0x03030303u;
  }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    columns(b, k, w);
    turn_columns(w);
  }
};
struct NVFP4 : QuantizedFormat<TensorType::kNVFP4, 64, 36> {
  static constexpr bool kFactorPer16 = true;
  __device__ static float factor(const uint8_t* b, int half) { return half_e4m3_to_float(b[half]); }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    uint32_t packed[4];
    load_words<kAlign>(b + 4 + 16 * k, packed);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      Fp4Table::eight(packed[j], w[4 * (j / 2) + j % 2], w[4 * (j / 2) + j % 2 + 2]);
  }
};

// ---- blocks of 256: K-quants

// 32 bytes of which bits `at` .. are the values.
template <int kAlign>
__device__ inline void load_bits(const uint8_t* p, int at, uint32_t mask, uint32_t (&w)[8]) {
  load_words<kAlign>(p, w);
#pragma unroll
  for (int j = 0; j < 8; ++j) w[j] = w[j] >> at & mask;
}
// The same, put on top of w.
template <int kAlign>
__device__ inline void add_bits(const uint8_t* p, int at, uint32_t mask, int up, uint32_t (&w)[8]) {
  uint32_t high[8];
  load_bits<kAlign>(p, at, mask, high);
#pragma unroll
  for (int j = 0; j < 8; ++j) w[j] |= high[j] << up;
}

struct Q2_K : QuantizedFormat<TensorType::kQ2_K, 256, 84> {
  static constexpr int kScaleGroup = 16;
  static constexpr bool kScalesFitBytes = true;
  static constexpr bool kMinimum = true;
  static constexpr bool kIntegerMinimum = true;
  __device__ static float factor(const uint8_t* b, int /*half*/) { return load_half(b + 80); }
  __device__ static float minimum_factor(const uint8_t* b) { return -load_half(b + 82); }
  __device__ static int scale(const uint8_t* b, int group) { return b[group] & 15; }
  __device__ static int minimum(const uint8_t* b, int group) { return b[group] >> 4; }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    load_bits<kAlign>(b + 16 + 32 * (k / 4), 2 * (k % 4), 0x03030303u, w);
  }
};
struct Q3_K : QuantizedFormat<TensorType::kQ3_K, 256, 110> {
  static constexpr int kOffset = 4;
  static constexpr int kScaleGroup = 16;
  __device__ static float factor(const uint8_t* b, int /*half*/) { return load_half(b + 108); }
  __device__ static int scale(const uint8_t* b, int group) {
    const int low = b[96 + group % 8] >> 4 * (group / 8) & 15;
    const int high = b[104 + group % 4] >> 2 * (group / 4) & 3;
    return low + 16 * high - 32;
  }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    load_bits<kAlign>(b + 32 + 32 * (k / 4), 2 * (k % 4), 0x03030303u, w);
    add_bits<kAlign>(b, k, 0x01010101u, 2, w);
  }
};
// The 6-bit scales and minimums of Q4_K and Q5_K: twelve bytes; groups 0-3 whole, of 4-7 the upper two bits
// on top of those.
template <TensorType type, int bytes>
struct SixBitScales : QuantizedFormat<type, 256, bytes> {
  static constexpr int kScaleGroup = 32;
  static constexpr bool kMinimum = true;
  static constexpr bool kIntegerMinimum = true;
  __device__ static float minimum_factor(const uint8_t* b) { return -load_half(b + 2); }
  __device__ static int scale(const uint8_t* b, int group) {
    if (group < 4) return b[4 + group] & 63;
    return (b[8 + group] & 15) | (b[group] >> 6 << 4);
  }
  __device__ static int minimum(const uint8_t* b, int group) {
    if (group < 4) return b[8 + group] & 63;
    return b[8 + group] >> 4 | (b[4 + group] >> 6 << 4);
  }
};
struct Q4_K : SixBitScales<TensorType::kQ4_K, 144> {
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    load_bits<kAlign>(b + 16 + 32 * (k / 2), 4 * (k % 2), 0x0f0f0f0fu, w);
  }
};
struct Q5_K : SixBitScales<TensorType::kQ5_K, 176> {
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    load_bits<kAlign>(b + 48 + 32 * (k / 2), 4 * (k % 2), 0x0f0f0f0fu, w);
    add_bits<kAlign>(b + 16, k, 0x01010101u, 4, w);
  }
};
struct Q6_K : QuantizedFormat<TensorType::kQ6_K, 256, 210> {
  static constexpr int kOffset = 32;
  static constexpr int kScaleGroup = 16;
  __device__ static float factor(const uint8_t* b, int /*half*/) { return load_half(b + 208); }
  __device__ static int scale(const uint8_t* b, int group) { return static_cast<int8_t>(b[192 + group]); }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    const int j = k % 4;
    load_bits<kAlign>(b + 64 * (k / 4) + 32 * (j % 2), 4 * (j / 2), 0x0f0f0f0fu, w);
    add_bits<kAlign>(b + 128 + 32 * (k / 4), 2 * j, 0x03030303u, 4, w);
  }
};
struct IQ4_XS : QuantizedFormat<TensorType::kIQ4_XS, 256, 136> {
  static constexpr int kScaleGroup = 32;
  __device__ static int scale(const uint8_t* b, int group) {
    const int low = b[4 + group / 2] >> 4 * (group % 2) & 15;
    const int high = static_cast<int>(load_half_word(b + 2)) >> 2 * group & 3;
    return low + 16 * high - 32;
  }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    load_looked_up<Iq4Table, kAlign>(b + 8 + 16 * k, w);
  }
};

// ---- float types: one value

struct F32 {
  static constexpr TensorType kType = TensorType::kF32;
  static constexpr int kValueBytes = 4;
  __device__ static float one(const uint8_t* p) { return *reinterpret_cast<const float*>(p); }
};
struct F16 {
  static constexpr TensorType kType = TensorType::kF16;
  static constexpr int kValueBytes = 2;
  __device__ static float one(const uint8_t* p) { return load_half(p); }
};
struct BF16 {
  static constexpr TensorType kType = TensorType::kBF16;
  static constexpr int kValueBytes = 2;
  __device__ static float one(const uint8_t* p) {
    return bf16_to_float(static_cast<uint16_t>(load_half_word(p)));
  }
};

}  // namespace strata::gpu_worker::cuda

#include "gpu-worker/cuda/formats_code_books.cuh"

namespace strata::gpu_worker::cuda {

// The 32 weights of unit k as signed bytes, in their order.
template <class F>
__device__ inline void load_weights(const uint8_t* block, int k, uint32_t (&w)[8]) {
  F::raw(block, k, w);
#pragma unroll
  for (int j = 0; j < 8; ++j) w[j] = minus_bytes<F::kOffset>(w[j]);
}

// Weights as floats by the format's formula: only the addition of a minimum rounds. i is the index in the
// unit.
template <class F>
__device__ inline float dequantized(const uint8_t* block, int k, int i, int w) {
  const int group = F::kScaleGroup == 16 ? 2 * k + i / 16 : k;
  // Factor and scale first: a zero gets the sign that it has on the host.
  const float scaled = F::factor(block, 2 * k + i / 16) * static_cast<float>(F::scale(block, group));
  const float value = scaled * static_cast<float>(w);
  if constexpr (!F::kMinimum) return value;
  return value + F::minimum_factor(block) * static_cast<float>(F::minimum(block, group));
}

// Calls f(F{}) for the format of a type; false if the type is not among them.
template <class... Formats>
struct FormatList {
  template <class Function>
  static bool dispatch(TensorType type, Function f) {
    return ((type == Formats::kType && (f(Formats{}), true)) || ...);
  }
};
using QuantizedFormats =
    FormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS,
               IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, MXFP4, NVFP4>;
using FloatFormats = FormatList<F32, F16, BF16>;

}  // namespace strata::gpu_worker::cuda
