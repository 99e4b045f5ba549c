#pragma once
// Reading blocks, which lie at addresses that are multiples of 4, of 2 or of nothing, and the byte tricks
// that their formats share: a word holds four values, the first in the lowest byte.

#include "gpu-worker/cuda/device_code.cuh"
#include "gpu-worker/cuda/math.cuh"

namespace strata::gpu_worker::cuda {

// kWords words from p, which is a multiple of kAlign. Reads whole aligned words, but only such that hold a
// byte of what is asked for.
template <int kAlign, int kWords>
__device__ inline void load_words(const uint8_t* p, uint32_t (&words)[kWords]) {
  if constexpr (kAlign % 4 == 0) {
    for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const uint32_t*>(p)[i];
  } else {
    const uint32_t shift = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 3;
    const uint32_t select = 0x3210 + 0x1111 * shift;
    const auto* aligned = reinterpret_cast<const uint32_t*>(p - shift);
    uint32_t low = aligned[0];
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int next = i + 1 < kWords || shift != 0 ? i + 1 : i;
      const uint32_t high = aligned[next];
      words[i] = __byte_perm(low, high, select);
      low = high;
    }
  }
}
// The same from a multiple of 2 that most often is one of 4.
template <int kWords>
__device__ inline void load_mostly_aligned(const uint8_t* p, uint32_t (&words)[kWords]) {
  if ((reinterpret_cast<uintptr_t>(p) & 3) == 0) {
    load_words<4>(p, words);
  } else {
    load_words<2>(p, words);
  }
}
template <int kAlign>
__device__ inline uint32_t load_word(const uint8_t* p) {
  uint32_t words[1];
  load_words<kAlign>(p, words);
  return words[0];
}
__device__ inline uint32_t load_half_word(const uint8_t* p) { return *reinterpret_cast<const uint16_t*>(p); }
__device__ inline float load_half(const uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(load_half_word(p))));
}

__device__ inline float low_half(uint32_t word) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(word)));
}
__device__ inline float high_half(uint32_t word) { return low_half(word >> 16); }

// Bits n, n + 1, n + 2, n + 3 of x -> the lowest bit of each byte.
__device__ inline uint32_t bits_to_bytes(uint32_t x, int n) {
  return ((x >> n & 15u) * 0x00204081u) & 0x01010101u;
}

// Low nibbles of 16 bytes, then their high ones.
__device__ inline void spread_nibbles(const uint32_t (&packed)[4], uint32_t (&w)[8]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    w[j] = packed[j] & 0x0f0f0f0fu;
    w[j + 4] = packed[j] >> 4 & 0x0f0f0f0fu;
  }
}

// Sixteen bytes that a nibble chooses from, as the constants of a type: four words.
constexpr uint32_t four_bytes(int a, int b, int c, int d) {
  return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | (d & 255u) << 24;
}
template <uint32_t kWord0, uint32_t kWord1, uint32_t kWord2, uint32_t kWord3>
struct NibbleTable {
  // What the nibbles of the lower 16 bits of `packed` choose.
  __device__ static uint32_t four(uint32_t packed) {
    const uint32_t index = packed & 0x7777u;
    const uint32_t first = __byte_perm(kWord0, kWord1, index);
    const uint32_t last = __byte_perm(kWord2, kWord3, index);
    return __byte_perm(first, last, 0x3210u | (packed & 0x8888u) >> 1);
  }
  // What the low nibbles of a word choose, and its high ones.
  __device__ static void eight(uint32_t packed, uint32_t& low, uint32_t& high) {
    const uint32_t first = four(packed), last = four(packed >> 16);
    low = __byte_perm(first, last, 0x6420);
    high = __byte_perm(first, last, 0x7531);
  }
};
using Iq4Table = NibbleTable<four_bytes(-127, -104, -83, -65), four_bytes(-49, -35, -22, -10),
                             four_bytes(1, 13, 25, 38), four_bytes(53, 69, 89, 113)>;
using Fp4Table = NibbleTable<four_bytes(0, 1, 2, 3), four_bytes(4, 6, 8, 12), four_bytes(0, -1, -2, -3),
                             four_bytes(-4, -6, -8, -12)>;

// Byte j of word i -> byte i of word j.
__device__ inline void transpose_bytes(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  const uint32_t first_ab = __byte_perm(a, b, 0x5140), last_ab = __byte_perm(a, b, 0x7362);
  const uint32_t first_cd = __byte_perm(c, d, 0x5140), last_cd = __byte_perm(c, d, 0x7362);
  a = __byte_perm(first_ab, first_cd, 0x5410);
  b = __byte_perm(first_ab, first_cd, 0x7632);
  c = __byte_perm(last_ab, last_cd, 0x5410);
  d = __byte_perm(last_ab, last_cd, 0x7632);
}
// Between values in their order and the columns of formats.cuh, both ways.
__device__ inline void turn_columns(uint32_t (&w)[8]) {
  transpose_bytes(w[0], w[1], w[2], w[3]);
  transpose_bytes(w[4], w[5], w[6], w[7]);
}

// The four bytes of w, none of them 0, negated where `negative` has a 1 in their lowest bit.
__device__ inline uint32_t negate_bytes(uint32_t w, uint32_t negative) {
  return (w ^ negative * 255u) + negative;
}
// Signed bytes w - offset of unsigned ones below 128.
template <int kOffset>
__device__ inline uint32_t minus_bytes(uint32_t w) {
  if constexpr (kOffset == 0) {
    return w;
  } else {
    return ((w | 0x80808080u) - 0x01010101u * kOffset) ^ 0x80808080u;
  }
}

// Four 7-bit codes of signs, each completed to an even number by a parity bit: the sign of value i in bit i.
__device__ inline uint32_t even_signs(uint32_t codes) {
  const uint32_t sevens =
      (codes & 0x7fu) | (codes << 1 & 0x7f00u) | (codes << 2 & 0x7f0000u) | (codes << 3 & 0x7f000000u);
  uint32_t parity = sevens ^ (sevens << 4 & 0xf0f0f0f0u);
  parity ^= parity << 2 & 0xc0c0c0c0u;
  parity ^= parity << 1 & 0x80808080u;
  return sevens | (parity & 0x80808080u);
}

}  // namespace strata::gpu_worker::cuda
