#pragma once
// Small numbers as they lie in blocks: unaligned, little-endian, binary16 and its relatives, converted
// exactly. In the variant's own namespace, see variant.h.

#include <cstddef>
#include <cstdint>
#include <cstring>

// Under nvcc these functions serve host and device code alike.
#ifdef __CUDACC__
#define STRATA_HOST_DEVICE __host__ __device__
#else
#define STRATA_HOST_DEVICE
#endif

namespace strata::quant::STRATA_KERNEL_VARIANT {

template <class T>
STRATA_HOST_DEVICE inline T load_as(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
STRATA_HOST_DEVICE inline uint16_t load_u16(const void* p) { return load_as<uint16_t>(p); }
STRATA_HOST_DEVICE inline uint32_t load_u32(const void* p) { return load_as<uint32_t>(p); }
STRATA_HOST_DEVICE inline float float_of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
STRATA_HOST_DEVICE inline uint32_t bits_of_float(float value) { return __builtin_bit_cast(uint32_t, value); }

STRATA_HOST_DEVICE inline float bf16_to_float(uint16_t b) { return float_of_bits(uint32_t{b} << 16); }

// binary16. Normal numbers: move the 15 bits up and rebias the exponent by a multiplication with 2^112, which
// also normalises subnormals exactly; infinity and NaN keep their top exponent.
STRATA_HOST_DEVICE inline float half_to_float(uint16_t h) {
  const uint32_t magnitude = uint32_t{h} & 0x7fffu;
  const uint32_t sign = (uint32_t{h} & 0x8000u) << 16;
  const float value = float_of_bits(magnitude << 13) * 0x1p112f;
  const uint32_t bits = magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : bits_of_float(value);
  return float_of_bits(bits | sign);
}

// 2^(e - 128), subnormal for e = 0 and 1.
STRATA_HOST_DEVICE inline float e8m0_to_float(uint8_t e) {
  return float_of_bits(e < 2 ? 0x200000u << e : (uint32_t{e} - 1) << 23);
}

// Half of an unsigned 4-bit-exponent, 3-bit-mantissa number; bit 7 is ignored, 0x7f means 0.
STRATA_HOST_DEVICE inline float half_e4m3_to_float(uint8_t b) {
  const uint32_t m = b & 7u, x = (b >> 3) & 15u;
  if (b == 0x7f) return 0.0f;
  const float mantissa = static_cast<float>(x == 0 ? m : 8 + m);
  const uint32_t exponent = x == 0 ? 1 : x;  // mantissa * 2^(exponent - 10) / 2
  return mantissa * float_of_bits((127 + exponent - 11) << 23);
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
