#pragma once
// Dot products in 32 float32 lanes (docs/numerics.md, "Products of float weights"), and the products made of them: weights of float types,
// and dequantized weights for Numerics::kExact. In the variant's own namespace, see variant.h.

#include "services/quant/formats.h"
#include "services/quant/kernels.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

inline constexpr uint32_t kLanes = 32;

// 32 lanes in four vectors: lane l is element l % 8 of part l / 8.
struct Lanes {
  Floats8 part[4];

  void clear() {
    for (Floats8& p : part) p = zero_floats();
  }
  // The last elements of a row that is no multiple of 32: count < 32.
  template <class Step>
  void tail(std::size_t count, Step step) {
    if (count == 0) return;
    float lane[kLanes];
    for (int i = 0; i < 4; ++i) store_floats(part[i], lane + 8 * i);
    for (std::size_t i = 0; i < count; ++i) lane[i] = step(i, lane[i]);
    for (int i = 0; i < 4; ++i) part[i] = load_floats(lane + 8 * i);
  }
  // Lanes l and l+16, +8, +4, +2, +1.
  float total() const {
    float lane[8];
    store_floats(plus(plus(part[0], part[2]), plus(part[1], part[3])), lane);
    for (int i = 0; i < 4; ++i) lane[i] += lane[i + 4];
    lane[0] += lane[2];
    lane[1] += lane[3];
    return lane[0] + lane[1];
  }
};

// lanes[r][t] += W row r . x[t] for all cols; the 4 * kRowCount * kTokens accumulators hide the latency of fma.
template <class F, int kRowCount, int kTokens>
inline void float_tile(const ProductArgs& args, uint32_t row, uint32_t token) {
  Lanes lanes[kRowCount][kTokens];
  const std::byte* w[kRowCount];
  const float* x[kTokens];
  for (int r = 0; r < kRowCount; ++r) w[r] = args.weights + std::size_t{row + static_cast<uint32_t>(r)} * args.row_bytes;
  for (int t = 0; t < kTokens; ++t) x[t] = args.f32[token + static_cast<uint32_t>(t)];
  for (auto& row_lanes : lanes) {
    for (Lanes& l : row_lanes) l.clear();
  }
  const std::size_t whole = args.cols / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (int part = 0; part < 4; ++part) {
      const std::size_t at = i + 8 * static_cast<std::size_t>(part);
      Floats8 weights[kRowCount];
      for (int r = 0; r < kRowCount; ++r) weights[r] = F::load(w[r] + at * F::kValueBytes);
      for (int t = 0; t < kTokens; ++t) {
        const Floats8 activations = load_floats(x[t] + at);
        for (int r = 0; r < kRowCount; ++r) {
          lanes[r][t].part[part] = fma8(weights[r], activations, lanes[r][t].part[part]);
        }
      }
    }
  }
  for (int r = 0; r < kRowCount; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      lanes[r][t].tail(args.cols - whole, [&](std::size_t i, float lane) {
        return __builtin_fmaf(F::one(w[r] + (whole + i) * F::kValueBytes), x[t][whole + i], lane);
      });
      args.y[token + static_cast<uint32_t>(t)][row + static_cast<uint32_t>(r)] = lanes[r][t].total() * args.scale;
    }
  }
}

template <class F>
void product_float(const ProductArgs& args) {
  uint32_t row = args.row_begin;
  for (; row + 2 <= args.row_end; row += 2) {
    for (uint32_t token = 0; token < args.tokens; ++token) float_tile<F, 2, 1>(args, row, token);
  }
  for (; row < args.row_end; ++row) {
    for (uint32_t token = 0; token < args.tokens; ++token) float_tile<F, 1, 1>(args, row, token);
  }
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
        const float product = factor * static_cast<float>(w[i]);
        out[32 * k + i] = kMinimum ? product + minimum : product;
      }
    }
  }
}

template <class F>
void dequantize_quantized(const std::byte* blocks, float* out, std::size_t count) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (std::size_t i = 0; i < count; i += F::kBlockValues, block += F::kBlockBytes) dequantize_block<F>(block, out + i);
}

// Numerics::kExact. A block is dequantized once for up to 8 tokens, whose lanes wait in memory meanwhile.
template <class F>
void product_dequantized(const ProductArgs& args) {
  constexpr uint32_t kTokens = 8;
  for (uint32_t row = args.row_begin; row < args.row_end; ++row) {
    const auto* blocks = reinterpret_cast<const uint8_t*>(args.weights + std::size_t{row} * args.row_bytes);
    for (uint32_t token = 0; token < args.tokens; token += kTokens) {
      const uint32_t tokens = args.tokens - token < kTokens ? args.tokens - token : kTokens;
      Lanes lanes[kTokens];
      for (Lanes& l : lanes) l.clear();
      const uint8_t* block = blocks;
      for (uint32_t col = 0; col < args.cols; col += F::kBlockValues, block += F::kBlockBytes) {
        float w[F::kBlockValues];
        dequantize_block<F>(block, w);
        for (uint32_t t = 0; t < tokens; ++t) {
          const float* x = args.f32[token + t] + col;
          for (uint32_t i = 0; i < F::kBlockValues; i += kLanes) {
            for (uint32_t part = 0; part < 4; ++part) {
              Floats8& acc = lanes[t].part[part];
              acc = fma8(load_floats(w + i + 8 * part), load_floats(x + i + 8 * part), acc);
            }
          }
        }
      }
      for (uint32_t t = 0; t < tokens; ++t) args.y[token + t][row] = lanes[t].total() * args.scale;
    }
  }
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
