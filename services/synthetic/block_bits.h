#pragma once
// How numbers get into blocks: little-endian, unaligned, factors rounded to binary16.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata::synthetic {

// Rounded to nearest even, subnormals kept; beyond the range of binary16 its largest number.
uint16_t half_bits(float value);
float value_of_half(uint16_t bits);
inline float round_to_half(float value) { return value_of_half(half_bits(value)); }
// bfloat16, rounded to nearest even; `value` is finite.
uint16_t bf16_bits(float value);

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}
inline void put_half(std::byte* at, float value) { put(at, half_bits(value)); }
// Into bits that are still zero.
inline void add_bits(std::byte& at, uint32_t bits, uint32_t shift) {
  at |= static_cast<std::byte>(bits << shift);
}

}  // namespace strata::synthetic
