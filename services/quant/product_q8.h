#pragma once
// Products of quantized weights with 8-bit activations: eight rows of W at a time, one accumulator lane per
// row (docs/numerics.md, "Products of quantized weights"). In the variant's own namespace, see variant.h.

#include "services/quant/formats.h"
#include "services/quant/kernels.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

inline constexpr int kRows = 8;  // float32 lanes of a 256-bit register

// The integers of the 8 rows' blocks, turned around: lanes(g) is group g of every row.
template <int kGroups>
class ScaleLanes {
 public:
  template <PackedScales (*kUnpack)(const uint8_t*)>
  void load(const uint8_t* const (&blocks)[kRows]) {
    for (int word = 0; word < (kGroups + 7) / 8; ++word) rows_[word] = {};
    for (int row = 0; row < kRows; ++row) {
      const PackedScales s = kUnpack(blocks[row]);
      for (int word = 0; word < (kGroups + 7) / 8; ++word) rows_[word].row[row] = s.word[word];
    }
    for (int word = 0; word < (kGroups + 7) / 8; ++word)
      transpose_bytes(rows_[word].row, columns_ + 64 * word);
  }
  Ints8 lanes(int group) const { return signed_bytes(columns_ + 8 * group); }

 private:
  struct Square {
    uint64_t row[kRows];
  };
  Square rows_[(kGroups + 7) / 8];
  alignas(32) int8_t columns_[64 * ((kGroups + 7) / 8)];
};

// The parts of 8 blocks that do not depend on the activations.
template <class F>
struct BlockScales {
  static constexpr bool kMinimum = !__is_same(typename F::Minimum, NoMinimum);
  static constexpr int kFactors = F::kFactorPer16 ? F::kBlockValues / 16 : 1;
  static constexpr int kGroups = F::kScaleGroup == 0 ? 1 : F::kBlockValues / F::kScaleGroup;

  explicit BlockScales(const uint8_t* const (&blocks)[kRows]) {
    for (int g = 0; g < kFactors; ++g) factor[g] = F::Factor::lanes(blocks, g);
    if constexpr (kMinimum) minimum_factor = F::Minimum::lanes(blocks, 0);
    if constexpr (F::kIntegerMinimum) minimum_factor = negative(minimum_factor);
    if constexpr (F::kScaleGroup != 0) scales.template load<&F::scales>(blocks);
    if constexpr (F::kIntegerMinimum) minimums.template load<&F::minimums>(blocks);
  }
  Floats8 factor[kFactors];
  Floats8 minimum_factor;
  ScaleLanes<kGroups> scales, minimums;
};

// acc += unit k of 8 blocks times one token's unit.
template <class F>
inline Floats8 add_unit(Floats8 acc, const Bytes32 (&w)[kRows], const BlockScales<F>& block, int k, Bytes32 x,
                        float d_x, int32_t sum) {
  HalfDots dot = dots<F::kSigned>(w, x);
  const Floats8 d = spread_float(d_x);
  if constexpr (F::kFactorPer16) {
    acc = fma8(times(block.factor[2 * k], d), to_floats(dot.first), acc);
    return fma8(times(block.factor[2 * k + 1], d), to_floats(dot.last), acc);
  }
  // Sums of the activations of each half: for types with groups of 16 only.
  const int32_t first_sum =
      F::kScaleGroup == 16 && (F::kOffset != 0 || F::kIntegerMinimum) ? sum_first16(x) : 0;
  Ints8 isum;
  if constexpr (F::kScaleGroup == 16) {
    if constexpr (F::kOffset != 0) {
      dot.first = minus(dot.first, spread_int(F::kOffset * first_sum));
      dot.last = minus(dot.last, spread_int(F::kOffset * (sum - first_sum)));
    }
    isum = plus(times(block.scales.lanes(2 * k), dot.first), times(block.scales.lanes(2 * k + 1), dot.last));
  } else {
    isum = plus(dot.first, dot.last);
    if constexpr (F::kOffset != 0) isum = minus(isum, spread_int(F::kOffset * sum));
    if constexpr (F::kScaleGroup == 32) isum = times(block.scales.lanes(k), isum);
  }
  acc = fma8(times(block.factor[0], d), to_floats(isum), acc);
  if constexpr (BlockScales<F>::kMinimum) {
    Ints8 msum = spread_int(sum);
    if constexpr (F::kIntegerMinimum && F::kScaleGroup == 32) msum = times(block.minimums.lanes(k), msum);
    if constexpr (F::kIntegerMinimum && F::kScaleGroup == 16) {
      msum = plus(times(block.minimums.lanes(2 * k), spread_int(first_sum)),
                  times(block.minimums.lanes(2 * k + 1), spread_int(sum - first_sum)));
    }
    acc = fma8(times(block.minimum_factor, d), to_floats(msum), acc);
  }
  return acc;
}

template <class F, int kTokens>
inline void product_tile(const ProductArgs& args, const uint8_t* const (&rows)[kRows], uint32_t row,
                         uint32_t row_count, uint32_t token) {
  Floats8 acc[kTokens];
  for (Floats8& a : acc) a = zero_floats();
  const Q8Row* x = args.q8 + token;
  const uint32_t blocks = args.cols / F::kBlockValues;
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint8_t* at[kRows];
    for (int r = 0; r < kRows; ++r) at[r] = rows[r] + std::size_t{b} * F::kBlockBytes;
    const BlockScales<F> scales(at);
    for (int k = 0; k < F::kUnits; ++k) {
      Bytes32 w[kRows];
      for (int r = 0; r < kRows; ++r) w[r] = F::values(at[r], k);
      const std::size_t unit = std::size_t{b} * F::kUnits + static_cast<std::size_t>(k);
      for (int t = 0; t < kTokens; ++t) {
        acc[t] = add_unit<F>(acc[t], w, scales, k, load32(x[t].q + 32 * unit), x[t].d[unit], x[t].sum[unit]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    float out[kRows];
    store_floats(times(acc[t], spread_float(args.scale)), out);
    std::memcpy(args.y[token + static_cast<uint32_t>(t)] + row, out, row_count * sizeof(float));
  }
}

template <class F>
void product_q8(const ProductArgs& args) {
  for (uint32_t row = args.row_begin; row < args.row_end; row += kRows) {
    const uint32_t row_count = args.row_end - row < kRows ? args.row_end - row : kRows;
    const uint8_t* rows[kRows];  // the last group repeats its last row in the lanes that are left over
    for (uint32_t r = 0; r < kRows; ++r) {
      const std::size_t index = row + (r < row_count ? r : row_count - 1);
      rows[r] = reinterpret_cast<const uint8_t*>(args.weights) + index * args.row_bytes;
    }
    uint32_t token = 0;
    for (; token + 4 <= args.tokens; token += 4) product_tile<F, 4>(args, rows, row, row_count, token);
    for (; token + 2 <= args.tokens; token += 2) product_tile<F, 2>(args, rows, row, row_count, token);
    if (token < args.tokens) product_tile<F, 1>(args, rows, row, row_count, token);
  }
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
