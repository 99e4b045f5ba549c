#pragma once
// Deterministic weights and activations for tests, from integers only, so that they are the same on every
// machine. Never two calls of the generator in one expression: compilers differ in which comes first.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/gguf/tensor_type.h"

namespace strata::quant::tests {

// splitmix64
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(next() >> 32) % bound; }
  // -1 .. 1 in steps of 2^-20
  float uniform() { return (static_cast<float>(below(1u << 21)) - 0x1p20f) * 0x1p-20f; }

 private:
  uint64_t state_;
};

// Activations whose size changes every 32 values, with a few outliers.
inline std::vector<float> activations(Generator& random, std::size_t count) {
  std::vector<float> x(count);
  float size = 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 32 == 0) size = static_cast<float>(1u << random.below(8)) * 0x1p-5f;
    const float value = random.uniform() * size;
    x[i] = random.below(50) == 0 ? value * 16.0f : value;
  }
  return x;
}

// Where the binary16 factors of a block are.
inline std::vector<std::size_t> half_offsets(gguf::TensorType type) {
  using gguf::TensorType;
  switch (type) {
    case TensorType::kF32:
    case TensorType::kBF16:
    case TensorType::kMXFP4:
    case TensorType::kNVFP4:
    case TensorType::kIQ1_M:  // in pieces, see below
      return {};
    case TensorType::kQ2_K:
      return {80, 82};
    case TensorType::kQ3_K:
      return {108};
    case TensorType::kQ6_K:
      return {208};
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    default:
      return {0};
  }
}

// IQ1_M's binary16 factor lies in the top nibbles of the four words at the end of a block.
inline void put_iq1_m_factor(std::byte* block, uint32_t half) {
  for (int word = 0; word < 4; ++word) {
    std::byte& at = block[49 + 2 * word];
    at = (at & std::byte{0x0f}) | static_cast<std::byte>((half >> (4 * word) & 15u) << 4);
  }
}

// All bytes of a quantized block that hold float factors.
inline std::vector<std::size_t> factor_bytes(gguf::TensorType type) {
  if (type == gguf::TensorType::kMXFP4) return {0};
  if (type == gguf::TensorType::kNVFP4) return {0, 1, 2, 3};
  if (type == gguf::TensorType::kIQ1_M) return {49, 51, 53, 55};
  std::vector<std::size_t> bytes;
  for (const std::size_t offset : half_offsets(type)) bytes.insert(bytes.end(), {offset, offset + 1});
  return bytes;
}

// Random bytes with factors of usual size and either sign.
inline std::vector<std::byte> weights(Generator& random, gguf::TensorType type, uint32_t rows,
                                      uint32_t cols) {
  using gguf::TensorType;
  const auto& info = gguf::tensor_type_info(type);
  const std::size_t blocks = std::size_t{rows} * cols / info.block_values;
  std::vector<std::byte> bytes(blocks * info.block_bytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  // A number with `mantissa_bits`, a random sign and an exponent field from `first_exponent` on.
  const auto number = [&](uint32_t mantissa_bits, uint32_t first_exponent) {
    const uint32_t sign = random.below(2);
    const uint32_t exponent = first_exponent + random.below(4);
    return sign << 15 | exponent << mantissa_bits | random.below(1u << mantissa_bits);
  };
  const auto put = [&](std::byte* at, uint32_t mantissa_bits, uint32_t first_exponent) {
    const uint32_t value = number(mantissa_bits, first_exponent);
    at[0] = static_cast<std::byte>(value & 255);
    at[1] = static_cast<std::byte>(value >> 8);
  };
  for (std::size_t i = 0; i < blocks; ++i) {
    std::byte* block = bytes.data() + i * info.block_bytes;
    for (const std::size_t offset : half_offsets(type)) put(block + offset, 10, 6);
    if (type == TensorType::kIQ1_M) put_iq1_m_factor(block, number(10, 6));
    if (type == TensorType::kBF16) put(block, 7, 120);
    if (type == TensorType::kF32) put(block + 2, 7, 120);  // the upper half of a binary32 is a bfloat16
    if (type == TensorType::kMXFP4) block[0] = static_cast<std::byte>(118 + random.below(6));
    if (type == TensorType::kNVFP4) {
      for (int group = 0; group < 4; ++group) block[group] = static_cast<std::byte>(random.below(64));
    }
  }
  return bytes;
}

// Every type that products exist for, in the order of the golden files.
inline std::vector<gguf::TensorType> all_types() {
  using enum gguf::TensorType;
  return {kF32,   kF16,     kBF16,  kQ4_0,   kQ4_1,   kQ5_0,  kQ5_1,  kQ8_0,    kQ2_0,
          kQ2_K,  kQ3_K,    kQ4_K,  kQ5_K,   kQ6_K,   kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS,
          kIQ2_S, kIQ3_XXS, kIQ3_S, kIQ4_NL, kIQ4_XS, kMXFP4, kNVFP4};
}

}  // namespace strata::quant::tests
