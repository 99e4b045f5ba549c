#pragma once
// Dot products in 64 float32 lanes (docs/numerics.md, "Products of float weights"), and the products made of
// them: weights of float types, and dequantized weights for Numerics::kExact. In the variant's own namespace,
// see variant.h.

#include "services/quant/formats.h"
#include "services/quant/kernels.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

inline constexpr uint32_t kLanes = 64;
inline constexpr uint32_t kParts = kLanes / kFloatWidth;

// The lanes of one dot product in vectors: lane l is element l % kFloatWidth of part l / kFloatWidth.
// Independent accumulators also hide the latency of fma.
struct Lanes {
  FloatVec part[kParts];

  Lanes() {
    for (FloatVec& p : part) p = zero_vec();
  }

  // Feeds elements 0..count-1: step(i, lanes) takes kFloatWidth from i on, step1(i, lane) a single one. May
  // be called again for the elements that follow if count was a multiple of 64.
  template <class Step, class Step1>
  void feed(std::size_t count, Step step, Step1 step1) {
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (uint32_t p = 0; p < kParts; ++p) part[p] = step(i + kFloatWidth * p, part[p]);
    }
    for (uint32_t p = 0; i < count; ++p, i += kFloatWidth) {
      if (i + kFloatWidth <= count) {
        part[p] = step(i, part[p]);
        continue;
      }
      float lane[kFloatWidth];
      store_vec(part[p], lane);
      for (std::size_t l = 0; i + l < count; ++l) lane[l] = step1(i + l, lane[l]);
      part[p] = load_vec(lane);
    }
  }

  // Lanes l and l+32, then l+16, +8, +4, +2, +1.
  float total() const {
    FloatVec sums[kParts];
    for (uint32_t p = 0; p < kParts; ++p) sums[p] = part[p];
    for (uint32_t half = kParts / 2; half > 0; half /= 2) {
      for (uint32_t p = 0; p < half; ++p) sums[p] = plus(sums[p], sums[p + half]);
    }
    return sum_of_lanes(sums[0]);
  }
};

// lanes += w . x
template <class F>
inline void feed_products(Lanes& lanes, const std::byte* w, const float* x, std::size_t count) {
  lanes.feed(
      count,
      [&](std::size_t i, FloatVec acc) {
        return fma_vec(F::load(w + i * F::kValueBytes), load_vec(x + i), acc);
      },
      [&](std::size_t i, float acc) { return __builtin_fmaf(F::one(w + i * F::kValueBytes), x[i], acc); });
}

// kRows x kTokens dot products, kPartsAtOnce of the parts of their lanes at a time: as many accumulators as
// there is room for, each value that is loaded used kRows or kTokens times.
template <class F, uint32_t kRows, uint32_t kTokens>
inline void float_tile(const ProductArgs& args, uint32_t row, uint32_t token) {
  constexpr uint32_t kRoom = kFloatAccumulators / (kRows * kTokens);
  constexpr uint32_t kPartsAtOnce = kRoom < kParts ? kRoom : kParts;
  constexpr std::size_t kAhead = 2048;  // bytes: the rows behind are the ones that come next
  const std::byte* w[kRows];
  const float* x[kTokens];
  for (uint32_t r = 0; r < kRows; ++r) w[r] = args.weights + std::size_t{row + r} * args.row_bytes;
  for (uint32_t t = 0; t < kTokens; ++t) x[t] = args.f32[token + t];
  const std::size_t whole = args.cols / kLanes * kLanes;
  Lanes lanes[kRows][kTokens];
  for (uint32_t first = 0; first < kParts; first += kPartsAtOnce) {
    FloatVec acc[kRows][kTokens][kPartsAtOnce];
    for (auto& of_row : acc) {
      for (auto& of_token : of_row) {
        for (FloatVec& a : of_token) a = zero_vec();
      }
    }
    for (std::size_t i = kFloatWidth * first; i < whole; i += kLanes) {
      if constexpr (kRows * kTokens == 1) {
        for (std::size_t byte = 0; byte < kLanes * F::kValueBytes; byte += 64)
          __builtin_prefetch(w[0] + i * F::kValueBytes + kAhead + byte);
      }
      for (uint32_t p = 0; p < kPartsAtOnce; ++p) {
        const std::size_t at = i + kFloatWidth * p;
        FloatVec weights[kRows];
        for (uint32_t r = 0; r < kRows; ++r) weights[r] = F::load(w[r] + at * F::kValueBytes);
        for (uint32_t t = 0; t < kTokens; ++t) {
          const FloatVec activations = load_vec(x[t] + at);
          for (uint32_t r = 0; r < kRows; ++r) acc[r][t][p] = fma_vec(weights[r], activations, acc[r][t][p]);
        }
      }
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t t = 0; t < kTokens; ++t) {
        for (uint32_t p = 0; p < kPartsAtOnce; ++p) lanes[r][t].part[first + p] = acc[r][t][p];
      }
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t t = 0; t < kTokens; ++t) {
      if (whole < args.cols)
        feed_products<F>(lanes[r][t], w[r] + whole * F::kValueBytes, x[t] + whole, args.cols - whole);
      args.y[token + t][row + r] = lanes[r][t].total() * args.scale;
    }
  }
}

template <class F, uint32_t kRows>
inline void float_rows(const ProductArgs& args, uint32_t row) {
  uint32_t token = 0;
  for (; token + 2 <= args.tokens; token += 2) float_tile<F, kRows, 2>(args, row, token);
  if (token < args.tokens) float_tile<F, kRows, 1>(args, row, token);
}

// One token reads each row once, from end to end, as memory likes it; more tokens take two rows at a
// time.
template <class F>
void product_float(const ProductArgs& args) {
  uint32_t row = args.row_begin;
  if (args.tokens > 1) {
    for (; row + 2 <= args.row_end; row += 2) float_rows<F, 2>(args, row);
  }
  for (; row < args.row_end; ++row) float_rows<F, 1>(args, row);
}

template <class F>
void dequantize_float(const std::byte* blocks, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = F::one(blocks + i * F::kValueBytes);
}

// ---- quantized types as float32

template <class F>
void dequantize_block(const uint8_t* block, float* out) {
  constexpr bool kMinimum = !__is_same(typename F::Minimum, NoMinimum);
  PackedScales scales, minimums;
  if constexpr (F::kScaleGroup != 0) scales = F::scales(block);
  if constexpr (F::kIntegerMinimum) minimums = F::minimums(block);
  const auto integer = [](const PackedScales& s, int group) {
    return static_cast<float>(static_cast<int8_t>(s.word[group / 8] >> (8 * (group % 8))));
  };
  for (int k = 0; k < F::kUnits; ++k) {
    int8_t w[32];
    store32(F::values(block, k), w);
    for (int half = 0; half < 2; ++half) {
      const int group16 = 2 * k + half;
      const int group = F::kScaleGroup == 16 ? group16 : k;
      float factor = F::Factor::one(block, F::kFactorPer16 ? group16 : 0);
      if constexpr (F::kScaleGroup != 0) factor *= integer(scales, group);
      float minimum = 0;
      if constexpr (kMinimum) minimum = F::Minimum::one(block, 0);
      if constexpr (F::kIntegerMinimum) minimum = -minimum * integer(minimums, group);
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        const float product = factor * static_cast<float>(w[i] - F::kOffset);
        out[32 * k + i] = kMinimum ? product + minimum : product;
      }
    }
  }
}

template <class F>
void dequantize_quantized(const std::byte* blocks, float* out, std::size_t count) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (std::size_t i = 0; i < count; i += F::kBlockValues, block += F::kBlockBytes)
    dequantize_block<F>(block, out + i);
}

// Numerics::kExact. A chunk of a row is dequantized once for up to 8 tokens, whose lanes wait in memory
// meanwhile.
template <class F>
void product_dequantized(const ProductArgs& args) {
  constexpr uint32_t kTokens = 8;
  constexpr uint32_t kChunk = 256;  // a whole number of blocks and of turns through the lanes
  static_assert(kChunk % F::kBlockValues == 0 && kChunk % kLanes == 0);
  for (uint32_t row = args.row_begin; row < args.row_end; ++row) {
    for (uint32_t token = 0; token < args.tokens; token += kTokens) {
      const uint32_t tokens = args.tokens - token < kTokens ? args.tokens - token : kTokens;
      const std::byte* blocks = args.weights + std::size_t{row} * args.row_bytes;
      Lanes lanes[kTokens];
      for (uint32_t col = 0; col < args.cols; col += kChunk) {
        const uint32_t count = args.cols - col < kChunk ? args.cols - col : kChunk;
        float w[kChunk];
        dequantize_quantized<F>(blocks, w, count);
        blocks += count / F::kBlockValues * F::kBlockBytes;
        for (uint32_t t = 0; t < tokens; ++t) {
          const float* x = args.f32[token + t] + col;
          feed_products<F32>(lanes[t], reinterpret_cast<const std::byte*>(w), x, count);
        }
      }
      for (uint32_t t = 0; t < tokens; ++t) args.y[token + t][row] = lanes[t].total() * args.scale;
    }
  }
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
