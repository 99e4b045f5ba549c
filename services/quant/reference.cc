#include "services/quant/reference.h"

#include <bit>
#include <limits>

#include "services/base/check.h"
#include "services/quant/code_books.h"

namespace strata::quant::reference {
namespace {

using gguf::TensorType;

constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// A block as its description sees it.
struct Block {
  const std::byte* bytes;

  int operator[](int at) const { return static_cast<int>(bytes[at]); }
  int i8(int at) const { return static_cast<int8_t>(bytes[at]); }
  int u16(int at) const { return (*this)[at] + 256 * (*this)[at + 1]; }
  uint32_t u32(int at) const {
    return static_cast<uint32_t>(u16(at)) + 65536u * static_cast<uint32_t>(u16(at + 2));
  }
  int nib(int at, int high) const { return high == 0 ? (*this)[at] & 15 : (*this)[at] >> 4; }
  int n4(int at, int i) const { return nib(at + i % 16, i / 16); }
  float f16(int at) const { return f16_of(u16(at)); }
  static float f16_of(int h) {
    const int exponent = (h >> 10) & 31, mantissa = h & 1023;
    double value = exponent == 31  ? (mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan(""))
                   : exponent == 0 ? std::ldexp(mantissa, -24)
                                   : std::ldexp(1024 + mantissa, exponent - 25);
    return static_cast<float>((h >> 15) != 0 ? -value : value);
  }
};

int bit(uint32_t x, int n) { return static_cast<int>(x >> n) & 1; }
int field(uint32_t x, int at, int width) { return static_cast<int>(x >> at) & ((1 << width) - 1); }

// Value j of an entry: the level that its code book gives it.
int level8(const uint16_t* codes, int entry, int j) { return (codes[entry] >> 2 * j) & 3; }
int level4(const uint16_t* codes, int entry, int j) { return (codes[entry] >> 4 * j) & 15; }

// -1 where the 7-bit code of signs, completed to an even number of bits, has bit j set.
int even_sign(int code, int j) {
  const int parity = std::popcount(static_cast<uint32_t>(code)) % 2;
  return bit(static_cast<uint32_t>(code + 128 * parity), j) != 0 ? -1 : 1;
}
int sign(int byte, int j) { return bit(static_cast<uint32_t>(byte), j) != 0 ? -1 : 1; }

// value i of the code book types: G, k, j, p as in the description of the formats
int code_book_integer(TensorType type, Block b, int i) {
  const int group = i / 32, k = i % 32 / 8, j = i % 8, p = i / 8;
  switch (type) {
    case TensorType::kIQ2_XXS:
      return kIq2Levels[level8(kIq2XxsCodes, b[2 + 8 * group + k], j)] *
             even_sign(field(b.u32(6 + 8 * group), 7 * k, 7), j);
    case TensorType::kIQ2_XS:
      return kIq2Levels[level8(kIq2XsCodes, b.u16(2 + 2 * p) % 512, j)] *
             even_sign(b.u16(2 + 2 * p) / 512, j);
    case TensorType::kIQ2_S:
      return kIq2Levels[level8(kIq2SCodes, b[2 + p] + 256 * ((b[66 + group] >> 2 * k) & 3), j)] *
             sign(b[34 + p], j);
    case TensorType::kIQ3_XXS:
      return kIq3XxsLevels[level4(kIq3XxsCodes, b[2 + i / 4], i % 4)] *
             even_sign(field(b.u32(66 + 4 * group), 7 * k, 7), j);
    case TensorType::kIQ3_S: {
      const int entry = b[2 + i / 4] + 256 * bit(static_cast<uint32_t>(b[66 + group]), i % 32 / 4);
      return (2 * level4(kIq3SCodes, entry, i % 4) + 1) * sign(b[74 + p], j);
    }
    case TensorType::kIQ1_S: {
      const auto h = static_cast<uint32_t>(b.u16(34 + 2 * group));
      const int entry = b[2 + p] + 256 * field(h, 3 * k, 3);
      return 8 * (level8(kIq1Codes, entry, j) - 1) + (bit(h, 15) != 0 ? -1 : 1);
    }
    case TensorType::kIQ1_M: {
      const int n = b.nib(32 + p / 2, p % 2);
      return 8 * (level8(kIq1Codes, b[p] + 256 * (n & 7), j) - 1) + (n >= 8 ? -1 : 1);
    }
    default:
      CHECK(false, "no reference for type {}", gguf::tensor_type_info(type).name);
      return 0;
  }
}

// value i (of the block) without scales
int small_integer(TensorType type, Block b, int i) {
  const int h = i / 128, j = i % 128 / 32, l = i % 32, group = i / 32;
  switch (type) {
    case TensorType::kQ4_0:
      return b.n4(2, i) - 8;
    case TensorType::kQ4_1:
      return b.n4(4, i);
    case TensorType::kQ5_0:
      return b.n4(6, i) + 16 * bit(b.u32(2), i) - 16;
    case TensorType::kQ5_1:
      return b.n4(8, i) + 16 * bit(b.u32(4), i);
    case TensorType::kQ8_0:
      return b.i8(2 + i);
    case TensorType::kQ2_0:
      return ((b[2 + i / 4] >> 2 * (i % 4)) & 3) - 1;
    case TensorType::kQ2_K:
      return (b[16 + 32 * h + l] >> 2 * j) & 3;
    case TensorType::kQ3_K:
      return ((b[32 + 32 * h + l] >> 2 * j) & 3) + 4 * bit(static_cast<uint32_t>(b[l]), 4 * h + j) - 4;
    case TensorType::kQ4_K:
      return b.nib(16 + 32 * (group / 2) + l, group % 2);
    case TensorType::kQ5_K:
      return b.nib(48 + 32 * (group / 2) + l, group % 2) + 16 * bit(static_cast<uint32_t>(b[16 + l]), group);
    case TensorType::kQ6_K:
      return b.nib(64 * h + 32 * (j % 2) + l, j / 2) + 16 * ((b[128 + 32 * h + l] >> 2 * j) & 3) - 32;
    case TensorType::kIQ4_NL:
      return kIq4[b.n4(2, i)];
    case TensorType::kIQ4_XS:
      return kIq4[b.nib(8 + 16 * group + i % 16, i % 32 / 16)];
    case TensorType::kMXFP4:
      return kE2m1[b.n4(1, i)];
    case TensorType::kNVFP4:
      return kE2m1[b.nib(4 + 8 * (i / 16) + i % 16 % 8, i % 16 / 8)];
    default:
      return code_book_integer(type, b, i);
  }
}

int six_bits(Block b, int group, bool minimum) {
  const auto s = [&](int at) { return b[4 + at]; };
  if (group < 4) return s(group + (minimum ? 4 : 0)) & 63;
  if (minimum) return (s(group + 4) >> 4) + 16 * (s(group) >> 6);
  return (s(group + 4) & 15) + 16 * (s(group - 4) >> 6);
}

int integer_scale(TensorType type, Block b, int i) {
  const int g = i / 16, group = i / 32;
  switch (type) {
    case TensorType::kQ2_K:
      return b[g] & 15;
    case TensorType::kQ3_K:
      return b.nib(96 + g % 8, g / 8) + 16 * ((b[104 + g % 4] >> 2 * (g / 4)) & 3) - 32;
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return six_bits(b, group, false);
    case TensorType::kQ6_K:
      return b.i8(192 + g);
    case TensorType::kIQ4_XS:
      return b.nib(4 + group / 2, group % 2) + 16 * ((b.u16(2) >> 2 * group) & 3) - 32;
    case TensorType::kIQ1_S:
      return 2 * ((b.u16(34 + 2 * group) >> 12) & 7) + 1;
    case TensorType::kIQ1_M:
      return 2 * ((b.u16(48 + 2 * (g / 4)) >> 3 * (g % 4)) & 7) + 1;
    case TensorType::kIQ2_XXS:
      return 2 * (b[9 + 8 * group] >> 4) + 1;
    case TensorType::kIQ2_XS:
      return 2 * b.nib(66 + g / 2, g % 2) + 1;
    case TensorType::kIQ2_S:
      return 2 * b.nib(74 + g / 2, g % 2) + 1;
    case TensorType::kIQ3_XXS:
      return 2 * (b[69 + 4 * group] >> 4) + 1;
    case TensorType::kIQ3_S:
      return 2 * b.nib(106 + group / 2, group % 2) + 1;
    default:
      return 1;
  }
}

float e4m3_half(int b) {
  const int m = b & 7, x = (b >> 3) & 15;
  if (b == 0 || b == 0x7f) return 0;
  return static_cast<float>((x == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, x - 10)) / 2);
}

float float_factor(TensorType type, Block b, int i) {
  switch (type) {
    case TensorType::kQ2_K:
      return b.f16(80);
    case TensorType::kQ3_K:
      return b.f16(108);
    case TensorType::kQ6_K:
      return b.f16(208);
    case TensorType::kMXFP4:
      return static_cast<float>(std::ldexp(1.0, b[0] - 128));
    case TensorType::kNVFP4:
      return e4m3_half(b[i / 16]);
    case TensorType::kIQ1_S:
    case TensorType::kIQ2_XXS:
    case TensorType::kIQ2_XS:
    case TensorType::kIQ2_S:
      return b.f16(0) / 8;
    case TensorType::kIQ3_XXS:
      return b.f16(0) / 4;
    case TensorType::kIQ1_M: {
      int h = 0;
      for (int n = 0; n < 4; ++n) h += (b.u16(48 + 2 * n) >> 12) << 4 * n;
      return Block::f16_of(h) / 8;
    }
    default:
      return b.f16(0);
  }
}

void set_minimum(TensorType type, Block b, int first, Unit& u) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
      u.minimum_factor = b.f16(2);
      break;
    case TensorType::kQ2_K:
      u.minimum_factor = -b.f16(82);
      for (int half = 0; half < 2; ++half) u.minimum[half] = b[first / 16 + half] >> 4;
      break;
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      u.minimum_factor = -b.f16(2);
      u.minimum[0] = u.minimum[1] = six_bits(b, first / 32, true);
      break;
    default:
      return;
  }
  u.has_minimum = true;
}

float float_weight(TensorType type, const std::byte* row, std::size_t i) {
  const Block b{row};
  switch (type) {
    case TensorType::kF32:
      return std::bit_cast<float>(b.u32(static_cast<int>(4 * i)));
    case TensorType::kF16:
      return b.f16(static_cast<int>(2 * i));
    case TensorType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(b.u16(static_cast<int>(2 * i))) << 16);
    default:
      CHECK(false, "{} is no float type", gguf::tensor_type_info(type).name);
      return 0;
  }
}

}  // namespace

Unit unit(TensorType type, const std::byte* block, int k) {
  const Block b{block};
  Unit u;
  for (int i = 0; i < 32; ++i) u.w[i] = small_integer(type, b, 32 * k + i);
  for (int half = 0; half < 2; ++half) {
    const int first = 32 * k + 16 * half;
    u.factor[half] = float_factor(type, b, first);
    u.scale[half] = integer_scale(type, b, first);
  }
  u.factor_per_16 = type == TensorType::kNVFP4;
  set_minimum(type, b, 32 * k, u);
  return u;
}

std::vector<Unit> units(TensorType type, const std::byte* row, uint32_t cols) {
  const auto& info = gguf::tensor_type_info(type);
  const uint32_t per_block = info.block_values / 32;
  std::vector<Unit> all;
  for (uint32_t n = 0; n < cols / 32; ++n) {
    all.push_back(
        unit(type, row + std::size_t{n / per_block} * info.block_bytes, static_cast<int>(n % per_block)));
  }
  return all;
}

float dequantized(const Unit& u, int i) {
  const int half = i / 16;
  const float value = u.factor[half] * static_cast<float>(u.scale[half] * u.w[i]);
  if (!u.has_minimum) return value;
  return value + u.minimum_factor * static_cast<float>(u.minimum[half]);
}

std::vector<Q8Block> quantize(const float* x, std::size_t count) {
  std::vector<Q8Block> blocks(count / 32);
  for (std::size_t b = 0; b < blocks.size(); ++b, x += 32) {
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < 32; ++i) {
      finite = finite && std::isfinite(x[i]);
      if (std::fabs(x[i]) > amax) amax = std::fabs(x[i]);
    }
    Q8Block& block = blocks[b];
    block = {.q = {}, .d = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN(), .sum = 0};
    if (!finite || amax < 0x1p-100f) continue;
    block.d = amax / 127.0f;
    const float inverse = 127.0f / amax;
    for (int i = 0; i < 32; ++i) {
      block.q[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
      block.sum += block.q[i];
    }
  }
  return blocks;
}

float dot(const float* a, const float* b, std::size_t count) {
  float lane[64] = {};
  for (std::size_t i = 0; i < count; ++i) lane[i % 64] = std::fma(a[i], b[i], lane[i % 64]);
  for (int s = 32; s >= 1; s /= 2) {
    for (int l = 0; l < s; ++l) lane[l] = lane[l] + lane[l + s];
  }
  return lane[0];
}

float product(const std::vector<Unit>& row, const std::vector<Q8Block>& x, float scale) {
  float acc = 0;
  for (std::size_t n = 0; n < row.size(); ++n) {
    const Unit& u = row[n];
    const Q8Block& a = x[n];
    int dots[2] = {0, 0}, sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      dots[i / 16] += u.w[i] * a.q[i];
      sums[i / 16] += a.q[i];
    }
    if (u.factor_per_16) {
      for (int half = 0; half < 2; ++half) {
        const float p = u.factor[half] * a.d;
        acc = std::fma(p, static_cast<float>(dots[half]), acc);
      }
      continue;
    }
    const float p = u.factor[0] * a.d;
    acc = std::fma(p, static_cast<float>(u.scale[0] * dots[0] + u.scale[1] * dots[1]), acc);
    if (u.has_minimum) {
      const float m = u.minimum_factor * a.d;
      acc = std::fma(m, static_cast<float>(u.minimum[0] * sums[0] + u.minimum[1] * sums[1]), acc);
    }
  }
  return acc * scale;
}

float product(TensorType type, const std::byte* row, const float* x, uint32_t cols, float scale) {
  if (gguf::tensor_type_info(type).block_values > 1)
    return product(units(type, row, cols), quantize(x, cols), scale);
  std::vector<float> w(cols);
  for (std::size_t i = 0; i < cols; ++i) w[i] = float_weight(type, row, i);
  return dot(w.data(), x, cols) * scale;
}

float exp(float x) {
  if (std::isnan(x)) return x;
  if (x > 88.72284f) return std::numeric_limits<float>::infinity();
  if (x < -104.0f) return 0;
  const float scaled = x * 1.44269504f;
  const float n = std::nearbyint(scaled);
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040;
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = std::fma(p, r, c);
  const int half = static_cast<int>(std::floor(n / 2));
  const float partly = static_cast<float>(p * std::ldexp(1.0f, half));
  return partly * std::ldexp(1.0f, static_cast<int>(n) - half);
}

float sigmoid(float x) {
  const float e = exp(-std::fabs(x));
  const float one_more = 1.0f + e;
  return x >= 0 ? 1.0f / one_more : e / one_more;
}

float silu(float x) { return x * sigmoid(x); }

float softplus(float x) {
  if (x > 20.0f) return x;
  const float e = exp(-std::fabs(x));
  const float s = e / (2.0f + e);
  const float z = s * s;
  float p = 1.0f / 15;
  for (const float c : {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3}) p = std::fma(p, z, c);
  const float t = s + s;
  const float log1p = std::fma(t * z, p, t);
  return (x > 0 ? x : 0.0f) + log1p;
}

}  // namespace strata::quant::reference
