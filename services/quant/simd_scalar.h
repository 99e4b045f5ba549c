#pragma once
// simd.h without vector instructions.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "services/quant/half.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

struct Bytes32 {
  uint8_t v[32];
};
struct Ints8 {
  int32_t v[8];
};
struct Floats8 {
  float v[8];
};
// Sums over the first and the last 16 values of a unit, one per row.
struct HalfDots {
  Ints8 first, last;
};

// ---- bytes

inline Bytes32 load32(const void* p) {
  Bytes32 r;
  std::memcpy(r.v, p, 32);
  return r;
}
inline void store32(Bytes32 a, int8_t* p) { std::memcpy(p, a.v, 32); }

// 16 bytes -> their low nibbles, then their high nibbles.
inline Bytes32 nibbles(const uint8_t* p) {
  Bytes32 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i] & 15, r.v[i + 16] = p[i] >> 4;
  return r;
}
// 2 x 8 bytes -> low and high nibbles of the first 8, low and high nibbles of the last 8.
inline Bytes32 nibbles_by_8(const uint8_t* p) {
  Bytes32 r;
  for (int i = 0; i < 8; ++i) {
    r.v[i] = p[i] & 15, r.v[i + 8] = p[i] >> 4;
    r.v[i + 16] = p[i + 8] & 15, r.v[i + 24] = p[i + 8] >> 4;
  }
  return r;
}
// (byte >> shift) & mask
inline Bytes32 bits(Bytes32 a, int shift, uint8_t mask) {
  for (uint8_t& x : a.v) x = static_cast<uint8_t>(x >> shift) & mask;
  return a;
}
// byte << shift, where no bit is lost
inline Bytes32 shift_up(Bytes32 a, int shift) {
  for (uint8_t& x : a.v) x = static_cast<uint8_t>(x << shift);
  return a;
}
inline Bytes32 either(Bytes32 a, Bytes32 b) {
  for (int i = 0; i < 32; ++i) a.v[i] |= b.v[i];
  return a;
}
// bit i of `mask` set -> byte i is `value`, else 0
inline Bytes32 spread(uint32_t mask, uint8_t value) {
  Bytes32 r;
  for (int i = 0; i < 32; ++i) r.v[i] = (mask >> i) & 1 ? value : 0;
  return r;
}
// 8 bytes -> four 2-bit values each, lowest bits first
inline Bytes32 crumbs(const uint8_t* p) {
  Bytes32 r;
  for (int i = 0; i < 32; ++i) r.v[i] = (p[i / 4] >> (2 * (i % 4))) & 3;
  return r;
}
// table[byte] for bytes below 16
inline Bytes32 lookup(const int8_t (&table)[16], Bytes32 index) {
  for (uint8_t& x : index.v) x = static_cast<uint8_t>(table[x]);
  return index;
}

// Four words of 8 bytes, eight words of 4 bytes.
template <class Entries>
inline Bytes32 entries8(const Entries& entries, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
  const uint64_t words[4] = {entries[a], entries[b], entries[c], entries[d]};
  return load32(words);
}
template <class Entries>
inline Bytes32 entries4(const Entries& entries, const uint32_t (&index)[8]) {
  uint32_t words[8];
  for (int i = 0; i < 8; ++i) words[i] = entries[index[i]];
  return load32(words);
}
// bit i of `mask` set -> byte i changes its sign
inline Bytes32 negate_where(Bytes32 a, uint32_t mask) {
  for (int i = 0; i < 32; ++i) a.v[i] = static_cast<uint8_t>((mask >> i) & 1 ? -a.v[i] : a.v[i]);
  return a;
}

// ---- 8 rows

// Weights of 8 rows, signed or 0..63, with the activations of one token; |activation| <= 127.
template <bool /*kSigned*/>
inline HalfDots dots(const Bytes32 (&w)[8], Bytes32 x) {
  HalfDots r;
  for (int row = 0; row < 8; ++row) {
    int32_t first = 0, last = 0;
    for (int i = 0; i < 16; ++i) {
      first += static_cast<int8_t>(w[row].v[i]) * static_cast<int8_t>(x.v[i]);
      last += static_cast<int8_t>(w[row].v[i + 16]) * static_cast<int8_t>(x.v[i + 16]);
    }
    r.first.v[row] = first;
    r.last.v[row] = last;
  }
  return r;
}
// Sum of the first 16 signed bytes.
inline int32_t sum_first16(Bytes32 x) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += static_cast<int8_t>(x.v[i]);
  return sum;
}

// 8 x 8 bytes: byte c of rows[r] -> byte r of column c.
inline void transpose_bytes(const uint64_t (&rows)[8], int8_t* columns) {
  for (int c = 0; c < 8; ++c) {
    for (int r = 0; r < 8; ++r) columns[8 * c + r] = static_cast<int8_t>(rows[r] >> (8 * c));
  }
}
inline Ints8 signed_bytes(const int8_t* p) {
  Ints8 r;
  for (int i = 0; i < 8; ++i) r.v[i] = p[i];
  return r;
}
inline Ints8 spread_int(int32_t a) {
  Ints8 r;
  for (int32_t& x : r.v) x = a;
  return r;
}
inline Ints8 plus(Ints8 a, Ints8 b) {
  for (int i = 0; i < 8; ++i) a.v[i] += b.v[i];
  return a;
}
inline Ints8 minus(Ints8 a, Ints8 b) {
  for (int i = 0; i < 8; ++i) a.v[i] -= b.v[i];
  return a;
}
inline Ints8 times(Ints8 a, Ints8 b) {
  for (int i = 0; i < 8; ++i) a.v[i] *= b.v[i];
  return a;
}

// ---- floats

inline Floats8 to_floats(Ints8 a) {
  Floats8 r;
  for (int i = 0; i < 8; ++i) r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
inline Floats8 zero_floats() { return {}; }
inline Floats8 spread_float(float a) {
  Floats8 r;
  for (float& x : r.v) x = a;
  return r;
}
inline Floats8 load_floats(const void* p) {
  Floats8 r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void store_floats(Floats8 a, float* p) { std::memcpy(p, a.v, sizeof(a.v)); }
inline Floats8 times(Floats8 a, Floats8 b) {
  for (int i = 0; i < 8; ++i) a.v[i] *= b.v[i];
  return a;
}
inline Floats8 plus(Floats8 a, Floats8 b) {
  for (int i = 0; i < 8; ++i) a.v[i] += b.v[i];
  return a;
}
inline Floats8 negative(Floats8 a) {
  for (float& x : a.v) x = -x;
  return a;
}
inline Floats8 fma8(Floats8 a, Floats8 b, Floats8 c) {
  for (int i = 0; i < 8; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline Floats8 halfs_to_floats(const uint16_t (&h)[8]) {
  Floats8 r;
  for (int i = 0; i < 8; ++i) r.v[i] = half_to_float(h[i]);
  return r;
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
