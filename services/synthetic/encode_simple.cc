// Floats, and blocks with one factor each.
#include <cmath>

#include "services/quant/quant.h"
#include "services/synthetic/block_bits.h"
#include "services/synthetic/encoder.h"
#include "services/synthetic/levels.h"

namespace strata::synthetic {
namespace {

constexpr uint32_t kBlock = 32;
using Block = std::span<const float>;

// Sixteen bytes: value i in the low, value i + 16 in the high nibble.
void put_nibble(std::byte* quants, uint32_t i, int code) {
  add_bits(quants[i % 16], static_cast<uint32_t>(code), 4 * (i / 16));
}

template <class Levels>
float put_factor(std::byte* block, const Levels& levels, Block x) {
  const float d = best_factor(levels, x, round_to_half);
  put_half(block, d);
  return d;
}

struct Affine {
  float d, m;
};
Affine put_affine(std::byte* block, Block x, int steps) {
  const auto [low, high] = std::ranges::minmax_element(x);
  const Affine affine{round_to_half((*high - *low) / static_cast<float>(steps)), round_to_half(*low)};
  put_half(block, affine.d);
  put_half(block + 2, affine.m);
  return affine;
}

}  // namespace

uint16_t half_bits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  constexpr float kLargest = 65504.0f, kSmallestNormal = 0x1p-14f;
  if (magnitude >= kLargest) return sign | 0x7bffu;
  // Subnormal: a multiple of 2^-24. The product is exact, so one rounding remains.
  if (magnitude < kSmallestNormal)
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f)));
  const uint32_t unsigned_bits = bits & 0x7fffffffu;
  const uint32_t rounded = unsigned_bits + 0xfffu + ((unsigned_bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

float value_of_half(uint16_t bits) {
  std::byte stored[sizeof(bits)];
  put(stored, bits);
  float value = 0;
  quant::dequantize_row(gguf::TensorType::kF16, stored, &value, 1);
  return value;
}

uint16_t bf16_bits(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void encode_f32(const float* x, std::byte* block) { put(block, *x); }
void encode_f16(const float* x, std::byte* block) { put_half(block, *x); }
void encode_bf16(const float* x, std::byte* block) { put(block, bf16_bits(*x)); }

void encode_q4_0(const float* x, std::byte* block) {
  const IntegerLevels levels{-8, 7};
  const float d = put_factor(block, levels, Block(x, kBlock));
  for (uint32_t i = 0; i < kBlock; ++i) put_nibble(block + 2, i, nearest_code(levels, x[i], d) + 8);
}

void encode_q4_1(const float* x, std::byte* block) {
  const IntegerLevels levels{0, 15};
  const auto [d, m] = put_affine(block, Block(x, kBlock), levels.last);
  for (uint32_t i = 0; i < kBlock; ++i) put_nibble(block + 4, i, nearest_code(levels, x[i] - m, d));
}

void encode_q5_0(const float* x, std::byte* block) {
  const IntegerLevels levels{-16, 15};
  const float d = put_factor(block, levels, Block(x, kBlock));
  uint32_t high = 0;
  for (uint32_t i = 0; i < kBlock; ++i) {
    const int code = nearest_code(levels, x[i], d) + 16;
    put_nibble(block + 6, i, code & 15);
    high |= static_cast<uint32_t>(code >> 4) << i;
  }
  put(block + 2, high);
}

void encode_q5_1(const float* x, std::byte* block) {
  const IntegerLevels levels{0, 31};
  const auto [d, m] = put_affine(block, Block(x, kBlock), levels.last);
  uint32_t high = 0;
  for (uint32_t i = 0; i < kBlock; ++i) {
    const int code = nearest_code(levels, x[i] - m, d);
    put_nibble(block + 8, i, code & 15);
    high |= static_cast<uint32_t>(code >> 4) << i;
  }
  put(block + 4, high);
}

void encode_q8_0(const float* x, std::byte* block) {
  const IntegerLevels levels{-127, 127};
  const float d = round_to_half(largest_magnitude(Block(x, kBlock)) / levels.reach());
  put_half(block, d);
  for (uint32_t i = 0; i < kBlock; ++i)
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(nearest_code(levels, x[i], d)));
}

void encode_q2_0(const float* x, std::byte* block) {
  constexpr uint32_t kValues = 64;
  const IntegerLevels levels{-1, 2};
  const float d = put_factor(block, levels, Block(x, kValues));
  for (uint32_t i = 0; i < kValues; ++i)
    add_bits(block[2 + i / 4], static_cast<uint32_t>(nearest_code(levels, x[i], d) + 1), 2 * (i % 4));
}

void encode_iq4_nl(const float* x, std::byte* block) {
  const ListedLevels levels{kIq4Values};
  const float d = put_factor(block, levels, Block(x, kBlock));
  for (uint32_t i = 0; i < kBlock; ++i) put_nibble(block + 2, i, nearest_code(levels, x[i], d));
}

void encode_mxfp4(const float* x, std::byte* block) {
  const ListedLevels levels{kFp4Values};
  const Block values(x, kBlock);
  const float largest = largest_magnitude(values);
  if (largest == 0) return;  // 2^-128 times zeros
  // The factor 2^(e - 128) just below the one that reaches the largest value, or the two beside it.
  const int middle = std::ilogb(largest / levels.reach()) + 128;
  int best = 0;
  double best_error = HUGE_VAL;
  for (int e = std::max(middle - 1, 0); e <= std::min(middle + 1, 252); ++e) {
    const double error = squared_error(levels, values, std::ldexp(1.0f, e - 128));
    if (error >= best_error) continue;
    best = e;
    best_error = error;
  }
  block[0] = static_cast<std::byte>(best);
  for (uint32_t i = 0; i < kBlock; ++i)
    put_nibble(block + 1, i, nearest_code(levels, x[i], std::ldexp(1.0f, best - 128)));
}

void encode_nvfp4(const float* x, std::byte* block) {
  constexpr uint32_t kGroup = 16;
  constexpr int kScaleMax = 0x7e;
  const ListedLevels levels{kFp4Values};
  // Half of the scale that byte b stands for: 4 bits of exponent, 3 of mantissa.
  const auto factor = [](int b) {
    const int exponent = b >> 3, mantissa = b & 7;
    return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -10)
                         : std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
  };
  for (uint32_t group = 0; group < 4; ++group) {
    const Block values(x + group * kGroup, kGroup);
    const float wanted = largest_magnitude(values) / levels.reach();
    int reaching = 0;
    while (reaching < kScaleMax && factor(reaching) < wanted) ++reaching;
    int best = 0;
    double best_error = HUGE_VAL;
    for (int b = std::max(reaching - 6, 0); b <= reaching; ++b) {
      const double error = squared_error(levels, values, factor(b));
      if (error >= best_error) continue;
      best = b;
      best_error = error;
    }
    block[group] = static_cast<std::byte>(best);
    for (uint32_t u = 0; u < kGroup; ++u) {
      const auto code = static_cast<uint32_t>(nearest_code(levels, values[u], factor(best)));
      add_bits(block[4 + 8 * group + u % 8], code, 4 * (u / 8));
    }
  }
}

}  // namespace strata::synthetic
