#pragma once
// Products of quantized weights with 8-bit activations by lanes: kRows rows of W at a time, lane r the one
// accumulator of row r (docs/numerics.md, "Products of quantized weights").
//
// One token: blocks are turned into units in registers and used at once, or multiplied as they are
// (one_token.h). More tokens: the units of 256 columns are written to a buffer in the first-level cache and
// used for all tokens, so that weights are read and unpacked once.
//
// What differs between instruction sets is how dot products are made, a parameter Tiles (tiles_avx2.h,
// tiles_avx512.h, tiles_amx.h):
//
//   dots<F>(unit, x)                        of a unit with one token
//   begin<F>(tokens), end<F>(tokens)        around calls of add
//   add<F>(units, count, x, tokens, sums)   sums[t] += `count` units times token t of a tile: x[unit * tokens
//   + t]

#include "services/quant/formats_lanes.h"
#include "services/quant/kernels.h"
#include "services/quant/one_token.h"
#include "services/quant/scratch.h"
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

inline constexpr uint32_t kChunkUnits = 8;   // units in the buffer: 256 columns
inline constexpr uint32_t kTileTokens = 16;  // tokens that share a pass over the buffer

// ---- activations

template <class F>
inline void prepare_unit(const Q8Row& row, uint32_t unit, ActivationUnit& out) {
  __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(row.q + 32 * std::size_t{unit}));
  int32_t sum[2] = {row.sum[unit], 0};
  if constexpr (F::Shape::kHalves || F::Shape::kMinus) {
    // Sums of 8 bytes made unsigned, each 1024 too much.
    alignas(32) int64_t eights[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(eights),
                       _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256()));
    const auto first = static_cast<int32_t>(eights[0] + eights[1]) - 2048;
    const int32_t last = row.sum[unit] - first;
    if constexpr (F::Shape::kHalves) sum[0] = first, sum[1] = last;
    if constexpr (F::Shape::kHalves && !F::Shape::kMinus) {
      out.sums[0] = static_cast<int16_t>(first);
      out.sums[1] = static_cast<int16_t>(last);
    }
    if constexpr (F::Shape::kMinus && F::Shape::kHalves) {
      for (int group = 0; group < 4; ++group)
        out.minus[group / 2][group % 2] = static_cast<int16_t>(-2 * (eights[group] - 1024));
    } else if constexpr (F::Shape::kMinus) {
      out.minus[0][0] = static_cast<int16_t>(-2 * first);
      out.minus[0][1] = static_cast<int16_t>(-2 * last);
    }
  }
  for (int half = 0; half < 2; ++half) {
    out.start[half] = -F::kOffset * sum[half];
    out.sum[half] = static_cast<float>(sum[half]);
  }
  out.d = row.d[unit];
  if constexpr (F::kOrder == Order::kStride4) {
    q = _mm256_shuffle_epi8(
        q, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.q), q);
}

// A tile of tokens, unit by unit: out[unit * tokens + token].
template <class F>
void prepare_tile(const Q8Row* rows, uint32_t tokens, uint32_t units, ActivationUnit* out) {
  for (uint32_t unit = 0; unit < units; ++unit) {
    for (uint32_t t = 0; t < tokens; ++t) prepare_unit<F>(rows[t], unit, *out++);
  }
}

// ---- one unit of kRows rows, one token

// Of the halves of the unit, or of the whole.
template <class S>
struct Dots {
  Vec of[S::kHalves ? 2 : 1];
};

// The expression of docs/numerics.md. Integers are below 2^24, so their products and sums as floats are
// exact.
template <class S>
STRATA_LANES_INLINE Floats add_unit(Floats acc, const Unit<S>& u, const Dots<S>& dot,
                                    const ActivationUnit& x) {
  const Floats d = spread_lanes(x.d);
  Floats isum = to_floats(dot.of[0]);
  if constexpr (S::kFactors) {
    acc = fma(mul(u.factor[0], d), isum, acc);
    return fma(mul(u.factor[1], d), to_floats(dot.of[1]), acc);
  }
  if constexpr (S::kScaled) isum = mul(u.scale[0], isum);
  if constexpr (S::kHalves) isum = fma(u.scale[1], to_floats(dot.of[1]), isum);
  acc = fma(mul(u.factor[0], d), isum, acc);
  if constexpr (S::kMinimum != MinimumKind::kNone) {
    Floats msum = spread_lanes(x.sum[0]);
    if constexpr (S::kMinimum == MinimumKind::kInteger) msum = mul(u.minimum[0], msum);
    if constexpr (S::kMinimum == MinimumKind::kInteger && S::kHalves)
      msum = fma(u.minimum[1], spread_lanes(x.sum[1]), msum);
    acc = fma(mul(u.minimum_factor, d), msum, acc);
  }
  return acc;
}

// ---- fetching ahead

// Fetches what is read after the present rows into the second-level cache, evenly while these are used.
class ReadAhead {
 public:
  ReadAhead(const std::byte* begin, const std::byte* end) : at_(begin), end_(end) {}
  template <uint32_t kBytes>
  STRATA_LANES_INLINE void step() {
    if (at_ >= end_) return;
    for (uint32_t i = 0; i < kBytes; i += 64) _mm_prefetch(at_ + i, _MM_HINT_T1);
    at_ += kBytes;
  }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// ---- kRows rows

// body(block, k) for the units k of a number of blocks in a row; returns what follows them.
template <class F, class Block, class Body>
STRATA_LANES_INLINE Rows for_blocks(Rows rows, uint32_t blocks, ReadAhead& ahead, Body body) {
  for (uint32_t b = 0; b < blocks; ++b) {
    Block block(rows);
    unrolled<F::kUnits>([&](auto k) STRATA_LANES_LAMBDA {
      body(block, k);
      ahead.step<F::kBlockBytes * kRows / F::kUnits>();
    });
    rows.row0 += F::kBlockBytes;
  }
  return rows;
}
template <class F, class Body>
STRATA_LANES_INLINE Rows for_units(Rows rows, uint32_t blocks, ReadAhead& ahead, Body body) {
  return for_blocks<F, typename F::Block>(rows, blocks, ahead, [&](auto& block, auto k) STRATA_LANES_LAMBDA {
    Unit<typename F::Shape> unit;
    block.template unit<k>(unit);
    body(unit);
  });
}

// Flat: blocks and units are only fast in registers.
template <class F, class Tiles>
[[gnu::flatten]] Floats product_one(Rows rows, uint32_t blocks, const ActivationUnit* x, ReadAhead& ahead) {
  Floats acc = zero_lanes();
  if constexpr (kHasOneTokenBlock<F>) {
    for_blocks<F, OneTokenBlock<F>>(rows, blocks, ahead, [&](auto& block, auto k) STRATA_LANES_LAMBDA {
      acc = block.template add<k>(acc, *x++);
    });
  } else {
    for_units<F>(rows, blocks, ahead, [&](const Unit<typename F::Shape>& unit) STRATA_LANES_LAMBDA {
      acc = add_unit(acc, unit, Tiles::template dots<F>(unit, *x), *x);
      ++x;
    });
  }
  return acc;
}

// Turns blocks into units; returns what follows them.
template <class F>
[[gnu::flatten]] Rows unpack(Rows rows, uint32_t blocks, Unit<typename F::Shape>* out, ReadAhead& ahead) {
  return for_units<F>(rows, blocks, ahead,
                      [&](const Unit<typename F::Shape>& unit) STRATA_LANES_LAMBDA { *out++ = unit; });
}

// sums[t] of all tokens, from tiles one after another in x.
template <class F, class Tiles>
void product_many(Rows rows, uint32_t blocks, const ActivationUnit* x, uint32_t tokens, Floats* sums,
                  ReadAhead& ahead) {
  constexpr uint32_t kBlocks = kChunkUnits / F::kUnits;
  const std::size_t units = std::size_t{blocks} * F::kUnits;
  Unit<typename F::Shape> buffer[kChunkUnits];
  for (uint32_t t = 0; t < tokens; ++t) sums[t] = zero_lanes();
  for (uint32_t b = 0; b < blocks; b += kBlocks) {
    const uint32_t here = blocks - b < kBlocks ? blocks - b : kBlocks;
    rows = unpack<F>(rows, here, buffer, ahead);
    const ActivationUnit* tile = x;
    for (uint32_t t = 0; t < tokens; t += kTileTokens) {
      const uint32_t count = tokens - t < kTileTokens ? tokens - t : kTileTokens;
      Tiles::template add<F>(buffer, here * F::kUnits, tile + std::size_t{b} * F::kUnits * count, count,
                             sums + t);
      tile += units * count;
    }
  }
}

// ---- the whole product

inline void product_of_few_rows(TensorType type, const ProductArgs& args) {
#ifdef STRATA_LANES_OF_16
  avx2_lanes::kProducts[static_cast<uint32_t>(type)](args);
#else
  avx2::kTypes[static_cast<uint32_t>(type)].product_q8(args);
#endif
}

template <class F, class Tiles>
void product_lanes(const ProductArgs& args) {
  // The last rows may begin with some that came before, or are not ours; a matrix that has no kRows goes
  // elsewhere.
  if (args.row_end < kRows) return product_of_few_rows(F::kType, args);
  if (args.tokens > kTokensPerCall) __builtin_trap();  // `sums` below would not hold them
  const uint32_t units = args.cols / 32;
  const uint32_t blocks = units / F::kUnits;
  // A tile that is not full may be read as if it were.
  const std::size_t records = std::size_t{args.tokens} * units + kTileTokens;
  static const char form = 0;  // its address
  const ActivationScratch scratch =
      activation_scratch(records * sizeof(ActivationUnit),
                         {.version = args.tokens == 1 ? args.version : 0, .row = args.q8->q, .form = &form});
  auto* x = static_cast<ActivationUnit*>(scratch.memory);
  for (uint32_t t = 0; t < args.tokens && !scratch.prepared; t += kTileTokens) {
    const uint32_t count = args.tokens - t < kTileTokens ? args.tokens - t : kTileTokens;
    prepare_tile<F>(args.q8 + t, count, units, x + std::size_t{t} * units);
  }
  Tiles::template begin<F>(args.tokens);
  const Floats scale = spread_lanes(args.scale);
  const std::byte* end = args.weights + std::size_t{args.row_end} * args.row_bytes;
  for (uint32_t begin = args.row_begin; begin < args.row_end;) {
    const uint32_t left = args.row_end - begin;
    const uint32_t skip = left >= kRows ? 0 : kRows - left;  // lanes of rows that are not ours
    const uint32_t row = begin - skip;
    const std::byte* weights = args.weights + std::size_t{row} * args.row_bytes;
    const Rows rows(reinterpret_cast<const uint8_t*>(weights), args.row_bytes);
    ReadAhead ahead = left <= kRows ? ReadAhead(args.next.data(), args.next.data() + args.next.size())
                                    : ReadAhead(weights + kRows * args.row_bytes, end);
    Floats sums[kTokensPerCall];
    if (args.tokens == 1) {
      sums[0] = product_one<F, Tiles>(rows, blocks, x, ahead);
    } else {
      product_many<F, Tiles>(rows, blocks, x, args.tokens, sums, ahead);
    }
    for (uint32_t t = 0; t < args.tokens; ++t) store_from(args.y[t] + row, skip, mul(sums[t], scale));
    begin = row + kRows;
  }
  Tiles::template end<F>(args.tokens);
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
