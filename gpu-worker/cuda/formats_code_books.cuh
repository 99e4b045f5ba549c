#pragma once
// The code book types of formats.cuh, blocks of 256: entries of 8 or 4 magnitudes, signs beside them.
// Included by formats.cuh only.

#include "services/quant/code_book_entries.h"

namespace strata::gpu_worker::cuda {

// In each file that uses them; what a file does not use is not kept.
static __device__ const auto kDeviceIq2Xxs = quant::kIq2XxsEntries;
static __device__ const auto kDeviceIq2Xs = quant::kIq2XsEntries;
static __device__ const auto kDeviceIq2S = quant::kIq2SEntries;
static __device__ const auto kDeviceIq3Xxs = quant::kIq3XxsEntries;
static __device__ const auto kDeviceIq3S = quant::kIq3SEntries;
static __device__ const auto kDeviceIq1 = quant::kIq1Entries;

// Entry `index` of a book of entries of 8 bytes, or of 4.
template <class Book>
__device__ inline uint2 entry_of_8(const Book& book, uint32_t index) {
  return __ldg(reinterpret_cast<const uint2*>(&book) + index);
}
template <class Book>
__device__ inline uint32_t entry_of_4(const Book& book, uint32_t index) {
  return __ldg(reinterpret_cast<const uint32_t*>(&book) + index);
}

// Odd integers 2 s + 1 from nibbles.
__device__ inline int odd_nibble(const uint8_t* nibbles, int i) {
  return 2 * (nibbles[i / 2] >> 4 * (i % 2) & 15) + 1;
}

template <TensorType type, int bytes, int scale_group, int divisor>
struct CodeBookFormat : QuantizedFormat<type, 256, bytes> {
  static constexpr int kScaleGroup = scale_group;
  __device__ static float factor(const uint8_t* b, int /*half*/) { return load_half(b) * (1.0f / divisor); }

 protected:
  // Four entries of 8 with the signs of their 32 values.
  template <class Book>
  __device__ static void signed_entries(const Book& book, const uint32_t (&index)[4], uint32_t signs,
                                        uint32_t (&w)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 entry = entry_of_8(book, index[i]);
      w[2 * i] = negate_bytes(entry.x, bits_to_bytes(signs, 8 * i));
      w[2 * i + 1] = negate_bytes(entry.y, bits_to_bytes(signs, 8 * i + 4));
    }
  }
};

struct IQ2_XXS : CodeBookFormat<TensorType::kIQ2_XXS, 66, 32, 8> {
  __device__ static int scale(const uint8_t* b, int group) { return 2 * (b[9 + 8 * group] >> 4) + 1; }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    uint32_t words[2];
    load_words<kAlign>(b + 2 + 8 * k, words);
    signed_entries(kDeviceIq2Xxs, {words[0] & 255, words[0] >> 8 & 255, words[0] >> 16 & 255, words[0] >> 24},
                   even_signs(words[1]), w);
  }
};
struct IQ2_XS : CodeBookFormat<TensorType::kIQ2_XS, 74, 16, 8> {
  __device__ static int scale(const uint8_t* b, int group) { return odd_nibble(b + 66, group); }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    uint32_t q[2];
    load_words<kAlign>(b + 2 + 8 * k, q);
    const uint32_t codes =
        (q[0] >> 9 & 0x7fu) | (q[0] >> 25) << 7 | (q[1] >> 9 & 0x7fu) << 14 | (q[1] >> 25) << 21;
    signed_entries(kDeviceIq2Xs, {q[0] & 511, q[0] >> 16 & 511, q[1] & 511, q[1] >> 16 & 511},
                   even_signs(codes), w);
  }
};
struct IQ2_S : CodeBookFormat<TensorType::kIQ2_S, 82, 16, 8> {
  __device__ static int scale(const uint8_t* b, int group) { return odd_nibble(b + 74, group); }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    const uint32_t low = load_word<kAlign>(b + 2 + 4 * k), signs = load_word<kAlign>(b + 34 + 4 * k);
    const uint32_t high = uint32_t{b[66 + k]} << 8;
    signed_entries(kDeviceIq2S,
                   {(low & 255) | (high & 0x300), (low >> 8 & 255) | (high >> 2 & 0x300),
                    (low >> 16 & 255) | (high >> 4 & 0x300), (low >> 24) | (high >> 6 & 0x300)},
                   signs, w);
  }
};
struct IQ3_XXS : CodeBookFormat<TensorType::kIQ3_XXS, 98, 32, 4> {
  __device__ static int scale(const uint8_t* b, int group) { return 2 * (b[69 + 4 * group] >> 4) + 1; }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    uint32_t index[2];
    load_words<kAlign>(b + 2 + 8 * k, index);
    const uint32_t signs = even_signs(load_word<kAlign>(b + 66 + 4 * k));
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t entry = entry_of_4(kDeviceIq3Xxs, index[j / 4] >> 8 * (j % 4) & 255);
      w[j] = negate_bytes(entry, bits_to_bytes(signs, 4 * j));
    }
  }
};
struct IQ3_S : CodeBookFormat<TensorType::kIQ3_S, 110, 32, 1> {
  __device__ static int scale(const uint8_t* b, int group) { return odd_nibble(b + 106, group); }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    uint32_t index[2];
    load_words<kAlign>(b + 2 + 8 * k, index);
    const uint32_t high = b[66 + k], signs = load_word<kAlign>(b + 74 + 4 * k);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const uint32_t entry =
          entry_of_4(kDeviceIq3S, (index[j / 4] >> 8 * (j % 4) & 255) | (high << (8 - j) & 0x100));
      w[j] = negate_bytes(entry, bits_to_bytes(signs, 4 * j));
    }
  }
};

// The weights 8 g +- 1, g in -1..1, are kept as 8 (g + 1) from the code book, plus 2 where it is + 1.
struct IQ1_S : CodeBookFormat<TensorType::kIQ1_S, 50, 32, 8> {
  static constexpr int kOffset = 9;
  __device__ static int scale(const uint8_t* b, int group) {
    return 2 * static_cast<int>(load_half_word(b + 34 + 2 * group) >> 12 & 7) + 1;
  }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    const uint32_t low = load_word<kAlign>(b + 2 + 4 * k), h = load_half_word(b + 34 + 2 * k);
    const uint32_t up = (h >> 15) != 0 ? 0 : 0x02020202u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 entry = entry_of_8(kDeviceIq1, (low >> 8 * i & 255) | (h >> 3 * i & 7) << 8);
      w[2 * i] = entry.x | up;
      w[2 * i + 1] = entry.y | up;
    }
  }
};
struct IQ1_M : CodeBookFormat<TensorType::kIQ1_M, 56, 16, 8> {
  static constexpr int kOffset = 9;
  // A nibble in the top of each of the last four 16-bit words.
  __device__ static float factor(const uint8_t* b, int /*half*/) {
    uint32_t words[2];
    load_words<kAlign>(b + 48, words);
    const uint32_t bits = (words[0] >> 12 & 0xf) | (words[0] >> 24 & 0xf0) | (words[1] >> 4 & 0xf00) |
                          (words[1] >> 16 & 0xf000);
    return half_to_float(static_cast<uint16_t>(bits)) * 0.125f;
  }
  __device__ static int scale(const uint8_t* b, int group) {
    return 2 * static_cast<int>(load_half_word(b + 48 + 2 * (group / 4)) >> 3 * (group % 4) & 7) + 1;
  }
  __device__ static void raw(const uint8_t* b, int k, uint32_t (&w)[8]) {
    const uint32_t low = load_word<kAlign>(b + 4 * k), h = load_half_word(b + 32 + 2 * k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t nibble = h >> 4 * i & 15;
      const uint2 entry = entry_of_8(kDeviceIq1, (low >> 8 * i & 255) | (nibble & 7) << 8);
      const uint32_t up = nibble >= 8 ? 0 : 0x02020202u;
      w[2 * i] = entry.x | up;
      w[2 * i + 1] = entry.y | up;
    }
  }
};

}  // namespace strata::gpu_worker::cuda
