// Blocks of 256 values: groups of 16 or 32 with an integer scale, and a factor for all of them.
#include "services/synthetic/block_bits.h"
#include "services/synthetic/encoder.h"
#include "services/synthetic/levels.h"

namespace strata::synthetic {
namespace {

constexpr uint32_t kBlock = 256;
using Block = std::span<const float>;

// v = d * scale * code, the code a level.
struct ScaledFit {
  float d = 0;
  int scale[16] = {};
  int code[kBlock] = {};
};

template <class Levels>
ScaledFit fit_scaled(const float* x, uint32_t group, const Levels& levels, int scale_max) {
  ScaledFit fit;
  float factor[16] = {}, largest = 0;
  for (uint32_t g = 0; g < kBlock / group; ++g) {
    factor[g] = best_factor(levels, Block(x + g * group, group), [](float f) { return f; });
    largest = std::max(largest, std::fabs(factor[g]));
  }
  fit.d = round_to_half(largest / static_cast<float>(scale_max));
  const IntegerLevels scales{-scale_max, scale_max};
  for (uint32_t g = 0; g < kBlock / group; ++g) fit.scale[g] = nearest_code(scales, factor[g], fit.d);
  for (uint32_t i = 0; i < kBlock; ++i) {
    const float scale = fit.d * static_cast<float>(fit.scale[i / group]);
    fit.code[i] = nearest_code(levels, x[i], scale);
  }
  return fit;
}

// v = d * scale * code - dmin * minimum, nothing negative.
struct AffineFit {
  float d = 0, dmin = 0;
  int scale[16] = {}, minimum[16] = {};
  int code[kBlock] = {};
};

AffineFit fit_affine(const float* x, uint32_t group, int code_max, int scale_max) {
  AffineFit fit;
  float step[16] = {}, below[16] = {}, largest_step = 0, largest_below = 0;
  for (uint32_t g = 0; g < kBlock / group; ++g) {
    const auto [low, high] = std::ranges::minmax_element(Block(x + g * group, group));
    below[g] = std::max(-*low, 0.0f);
    step[g] = (std::max(*high, -below[g]) + below[g]) / static_cast<float>(code_max);
    largest_step = std::max(largest_step, step[g]);
    largest_below = std::max(largest_below, below[g]);
  }
  fit.d = round_to_half(largest_step / static_cast<float>(scale_max));
  fit.dmin = round_to_half(largest_below / static_cast<float>(scale_max));
  const IntegerLevels scales{0, scale_max}, codes{0, code_max};
  for (uint32_t g = 0; g < kBlock / group; ++g) {
    fit.scale[g] = nearest_code(scales, step[g], fit.d);
    fit.minimum[g] = nearest_code(scales, below[g], fit.dmin);
  }
  for (uint32_t i = 0; i < kBlock; ++i) {
    const uint32_t g = i / group;
    const float above = x[i] + fit.dmin * static_cast<float>(fit.minimum[g]);
    fit.code[i] = nearest_code(codes, above, fit.d * static_cast<float>(fit.scale[g]));
  }
  return fit;
}

// Where value i of a block of 256 is: its half, and inside that 32 values times 4.
struct Place {
  explicit Place(uint32_t i) : half(i / 128), j(i % 128 / 32), l(i % 32) {}
  uint32_t half, j, l;
};

// Q4_K and Q5_K: factors and the twelve bytes of eight 6-bit scales and minimums.
void put_six_bit_scales(std::byte* block, const AffineFit& fit) {
  put_half(block, fit.d);
  put_half(block + 2, fit.dmin);
  std::byte* s = block + 4;
  for (uint32_t g = 0; g < 8; ++g) {
    const auto scale = static_cast<uint32_t>(fit.scale[g]), minimum = static_cast<uint32_t>(fit.minimum[g]);
    if (g < 4) {
      add_bits(s[g], scale, 0);
      add_bits(s[g + 4], minimum, 0);
    } else {
      add_bits(s[g + 4], (scale & 15) | (minimum & 15) << 4, 0);
      add_bits(s[g - 4], scale >> 4, 6);
      add_bits(s[g], minimum >> 4, 6);
    }
  }
}

// 64 values in 32 bytes: the low nibbles first, then the high ones.
void put_nibble_of_64(std::byte* quants, uint32_t i, uint32_t nibble) {
  add_bits(quants[32 * (i / 64) + i % 32], nibble, 4 * (i / 32 % 2));
}

}  // namespace

void encode_q2_k(const float* x, std::byte* block) {
  const AffineFit fit = fit_affine(x, 16, 3, 15);
  put_half(block + 80, fit.d);
  put_half(block + 82, fit.dmin);
  for (uint32_t g = 0; g < 16; ++g)
    add_bits(block[g], static_cast<uint32_t>(fit.scale[g] | fit.minimum[g] << 4), 0);
  for (uint32_t i = 0; i < kBlock; ++i) {
    const Place at(i);
    add_bits(block[16 + 32 * at.half + at.l], static_cast<uint32_t>(fit.code[i]), 2 * at.j);
  }
}

void encode_q3_k(const float* x, std::byte* block) {
  const ScaledFit fit = fit_scaled(x, 16, IntegerLevels{-4, 3}, 31);
  put_half(block + 108, fit.d);
  for (uint32_t g = 0; g < 16; ++g) {
    const auto stored = static_cast<uint32_t>(fit.scale[g] + 32);
    add_bits(block[96 + g % 8], stored & 15, 4 * (g / 8));
    add_bits(block[104 + g % 4], stored >> 4, 2 * (g / 4));
  }
  for (uint32_t i = 0; i < kBlock; ++i) {
    const Place at(i);
    const auto stored = static_cast<uint32_t>(fit.code[i] + 4);
    add_bits(block[32 + 32 * at.half + at.l], stored & 3, 2 * at.j);
    add_bits(block[at.l], stored >> 2, 4 * at.half + at.j);
  }
}

void encode_q4_k(const float* x, std::byte* block) {
  const AffineFit fit = fit_affine(x, 32, 15, 63);
  put_six_bit_scales(block, fit);
  for (uint32_t i = 0; i < kBlock; ++i) put_nibble_of_64(block + 16, i, static_cast<uint32_t>(fit.code[i]));
}

void encode_q5_k(const float* x, std::byte* block) {
  const AffineFit fit = fit_affine(x, 32, 31, 63);
  put_six_bit_scales(block, fit);
  for (uint32_t i = 0; i < kBlock; ++i) {
    const auto code = static_cast<uint32_t>(fit.code[i]);
    put_nibble_of_64(block + 48, i, code & 15);
    add_bits(block[16 + i % 32], code >> 4, i / 32);
  }
}

void encode_q6_k(const float* x, std::byte* block) {
  const ScaledFit fit = fit_scaled(x, 16, IntegerLevels{-32, 31}, 127);
  put_half(block + 208, fit.d);
  for (uint32_t g = 0; g < 16; ++g)
    block[192 + g] = static_cast<std::byte>(static_cast<int8_t>(fit.scale[g]));
  for (uint32_t i = 0; i < kBlock; ++i) {
    const Place at(i);
    const auto stored = static_cast<uint32_t>(fit.code[i] + 32);
    add_bits(block[64 * at.half + 32 * (at.j % 2) + at.l], stored & 15, 4 * (at.j / 2));
    add_bits(block[128 + 32 * at.half + at.l], stored >> 4, 2 * at.j);
  }
}

void encode_iq4_xs(const float* x, std::byte* block) {
  const ScaledFit fit = fit_scaled(x, 32, ListedLevels{kIq4Values}, 31);
  put_half(block, fit.d);
  for (uint32_t g = 0; g < 8; ++g) {
    const auto stored = static_cast<uint32_t>(fit.scale[g] + 32);
    add_bits(block[4 + g / 2], stored & 15, 4 * (g % 2));
    add_bits(block[2 + g / 4], stored >> 4, 2 * (g % 4));
  }
  for (uint32_t i = 0; i < kBlock; ++i) {
    std::byte* quants = block + 8 + 16 * (i / 32);
    add_bits(quants[i % 16], static_cast<uint32_t>(fit.code[i]), 4 * (i % 32 / 16));
  }
}

}  // namespace strata::synthetic
