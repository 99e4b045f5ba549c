#pragma once
// Products of quantized weights with 8-bit activations by lanes: sixteen rows of W at a time, lane r the one
// accumulator of row r (docs/numerics.md, "Products of quantized weights").
//
// One token: blocks are turned into units in registers and used at once. More tokens: the units of 256
// columns are written to a buffer in the first-level cache and used for all tokens, so that weights are read
// and unpacked once.

#include <utility>

#include "services/quant/code_books_avx512.h"
#include "services/quant/kernels.h"
#include "services/quant/scratch.h"
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// One token's activations of a unit, as kernels read them: a cache line.
struct alignas(64) ActivationUnit {
  int8_t q[32];         // in the order of the format: lane value j meets w[j]
  int32_t start[2];     // -kOffset * sum, where the dot products begin: of the halves, or of the unit and 0
  float sum[2];         // the sums: of the halves, or of the unit and 0
  int16_t minus[2][2];  // -2 * the sums of both halves of what each dot product is of
  float d;
};
static_assert(sizeof(ActivationUnit) == 64);

inline constexpr uint32_t kChunkUnits = 8;   // units in the buffer: 256 columns
inline constexpr uint32_t kTileTokens = 16;  // tokens that share a pass over the buffer
inline constexpr uint32_t kTokensMax = 64;   // of one call

// ---- activations

// Sums of groups of 8 signed bytes, each 1024 too much.
inline __m256i sums_of_8(__m256i q) {
  return _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
}

template <class F>
inline void prepare_unit(const Q8Row& row, uint32_t unit, ActivationUnit& out) {
  __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(row.q + 32 * std::size_t{unit}));
  if constexpr (F::kOrder == Order::kStride4) {
    q = _mm256_shuffle_epi8(
        q, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.q), q);
  out.d = row.d[unit];
  if constexpr (F::Shape::kHalves) {
    const __m256i eights = sums_of_8(q);  // two are 2048 too much
    const __m256i sixteens = _mm256_add_epi64(eights, _mm256_bsrli_epi128(eights, 8));
    const int32_t first = _mm256_extract_epi32(sixteens, 0) - 2048,
                  last = _mm256_extract_epi32(sixteens, 4) - 2048;
    out.start[0] = -F::kOffset * first;
    out.start[1] = -F::kOffset * last;
    out.sum[0] = static_cast<float>(first);
    out.sum[1] = static_cast<float>(last);
  } else {
    out.start[0] = -F::kOffset * row.sum[unit];
    out.start[1] = 0;
    out.sum[0] = static_cast<float>(row.sum[unit]);
    out.sum[1] = 0;
  }
  if constexpr (F::Shape::kMinus) {
    alignas(32) int64_t eights[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(eights), sums_of_8(q));
    for (int group = 0; group < 4; ++group) {
      const auto twice = static_cast<int16_t>(-2 * (eights[group] - 1024));
      if constexpr (F::Shape::kHalves) {
        out.minus[group / 2][group % 2] = twice;
      } else if (group % 2 == 0) {
        out.minus[0][group / 2] = twice;
      } else {
        out.minus[0][group / 2] = static_cast<int16_t>(out.minus[0][group / 2] + twice);
      }
    }
  }
}

// A tile of tokens, unit by unit: out[unit * tokens + token].
template <class F>
void prepare_tile(const Q8Row* rows, uint32_t tokens, uint32_t units, ActivationUnit* out) {
  for (uint32_t unit = 0; unit < units; ++unit) {
    for (uint32_t t = 0; t < tokens; ++t) prepare_unit<F>(rows[t], unit, *out++);
  }
}

// ---- one unit of sixteen rows, one token

template <class S>
struct Dots {
  Vec of[S::kHalves ? 2 : 1];
};

// What the dot products begin with, so that offsets cancel.
template <class S>
inline Dots<S> dot_starts(const Unit<S>& u, const ActivationUnit& x) {
  Dots<S> dot;
  for (int i = 0; i < (S::kHalves ? 2 : 1); ++i) {
    dot.of[i] = _mm512_set1_epi32(x.start[i]);
    if constexpr (S::kMinus) dot.of[i] = _mm512_dpwssd_epi32(dot.of[i], u.minus[i], spread_four(x.minus[i]));
  }
  return dot;
}

template <class S>
inline Dots<S> dots(const Unit<S>& u, const ActivationUnit& x) {
  Dots<S> dot = dot_starts(u, x);
  if constexpr (S::kHalves) {
    for (int j = 0; j < 4; ++j) {
      dot.of[0] = add_dot4(dot.of[0], u.w[j], x.q + 4 * j);
      dot.of[1] = add_dot4(dot.of[1], u.w[j + 4], x.q + 4 * (j + 4));
    }
  } else {
    for (int j = 0; j < 8; ++j) dot.of[0] = add_dot4(dot.of[0], u.w[j], x.q + 4 * j);
  }
  return dot;
}

// The expression of docs/numerics.md. Integers are below 2^24, so their products and sums as floats are
// exact.
template <class S>
inline Floats add_unit(Floats acc, const Unit<S>& u, const Dots<S>& dot, const ActivationUnit& x) {
  const Floats d = spread_float(x.d);
  Floats isum = to_floats(dot.of[0]);
  if constexpr (S::kFactors) {
    acc = _mm512_fmadd_ps(_mm512_mul_ps(u.factor[0], d), isum, acc);
    return _mm512_fmadd_ps(_mm512_mul_ps(u.factor[1], d), to_floats(dot.of[1]), acc);
  }
  if constexpr (S::kScaled) isum = _mm512_mul_ps(u.scale[0], isum);
  if constexpr (S::kHalves) isum = _mm512_fmadd_ps(u.scale[1], to_floats(dot.of[1]), isum);
  acc = _mm512_fmadd_ps(_mm512_mul_ps(u.factor[0], d), isum, acc);
  if constexpr (S::kMinimum != MinimumKind::kNone) {
    Floats msum = spread_float(x.sum[0]);
    if constexpr (S::kMinimum == MinimumKind::kInteger) msum = _mm512_mul_ps(u.minimum[0], msum);
    if constexpr (S::kMinimum == MinimumKind::kInteger && S::kHalves)
      msum = _mm512_fmadd_ps(u.minimum[1], spread_float(x.sum[1]), msum);
    acc = _mm512_fmadd_ps(_mm512_mul_ps(u.minimum_factor, d), msum, acc);
  }
  return acc;
}

// ---- fetching ahead

// Fetches what is read after the present sixteen rows into the second-level cache, evenly while these are
// used.
class ReadAhead {
 public:
  ReadAhead(const std::byte* begin, const std::byte* end) : at_(begin), end_(end) {}
  template <uint32_t kBytes>
  void step() {
    if (at_ >= end_) return;
    for (uint32_t i = 0; i < kBytes; i += 64) _mm_prefetch(at_ + i, _MM_HINT_T1);
    at_ += kBytes;
  }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// ---- sixteen rows

template <class F, class Body, int... k>
inline void for_units(typename F::Block& block, Unit<typename F::Shape>& unit, Body&& body,
                      std::integer_sequence<int, k...>) {
  ((block.template unit<k>(unit), body(k)), ...);
}
template <class F, class Body>
inline void for_units(typename F::Block& block, Unit<typename F::Shape>& unit, Body&& body) {
  for_units<F>(block, unit, body, std::make_integer_sequence<int, F::kUnits>{});
}

// Flat: blocks and units are only fast in registers.
template <class F>
[[gnu::flatten]] Floats product_one(Rows rows, uint32_t blocks, const ActivationUnit* x, ReadAhead& ahead) {
  Floats acc = _mm512_setzero_ps();
  for (uint32_t b = 0; b < blocks; ++b) {
    typename F::Block block(rows);
    Unit<typename F::Shape> unit;
    for_units<F>(block, unit, [&](int k) {
      acc = add_unit(acc, unit, dots(unit, x[k]), x[k]);
      ahead.step<F::kBlockBytes * kRows / F::kUnits>();
    });
    x += F::kUnits;
    rows.row0 += F::kBlockBytes;
  }
  return acc;
}

// acc[t] += the buffered units times kTokens tokens, whose activations are x[unit * stride + t].
template <class S, uint32_t kTokens>
void add_tile(const Unit<S>* units, uint32_t count, const ActivationUnit* x, uint32_t stride, Floats* sums) {
  Floats acc[kTokens];
  for (uint32_t t = 0; t < kTokens; ++t) acc[t] = sums[t];
  for (uint32_t i = 0; i < count; ++i) {
    const Unit<S>& unit = units[i];
    // Unrolled, or sums and weights would not stay in registers.
#pragma GCC unroll 16
    for (uint32_t t = 0; t < kTokens; ++t) acc[t] = add_unit(acc[t], unit, dots(unit, x[t]), x[t]);
    x += stride;
  }
  for (uint32_t t = 0; t < kTokens; ++t) sums[t] = acc[t];
}

// How a tile of up to kTileTokens tokens is computed from the buffer.
struct VectorTiles {
  template <class S>
  static void begin() {}
  template <class S>
  static void end() {}

  template <class S>
  static void add(const Unit<S>* units, uint32_t count, const ActivationUnit* x, uint32_t tokens,
                  Floats* sums) {
    uint32_t t = 0;
    const auto take = [&]<uint32_t n>(std::integral_constant<uint32_t, n>) {
      for (; t + n <= tokens; t += n) add_tile<S, n>(units, count, x + t, tokens, sums + t);
    };
    take(std::integral_constant<uint32_t, 16>{});
    take(std::integral_constant<uint32_t, 8>{});
    take(std::integral_constant<uint32_t, 4>{});
    take(std::integral_constant<uint32_t, 2>{});
    take(std::integral_constant<uint32_t, 1>{});
  }
};

// Turns blocks into units; returns what follows them.
template <class F>
[[gnu::flatten]] Rows unpack(Rows rows, uint32_t blocks, Unit<typename F::Shape>* out, ReadAhead& ahead) {
  for (uint32_t b = 0; b < blocks; ++b) {
    typename F::Block block(rows);
    Unit<typename F::Shape> unit;
    for_units<F>(block, unit, [&](int) {
      *out++ = unit;
      ahead.step<F::kBlockBytes * kRows / F::kUnits>();
    });
    rows.row0 += F::kBlockBytes;
  }
  return rows;
}

// sums[t] of all tokens, from tiles one after another in x.
template <class F, class Tiles>
void product_many(Rows rows, uint32_t blocks, const ActivationUnit* x, uint32_t tokens, Floats* sums,
                  ReadAhead& ahead) {
  constexpr uint32_t kBlocks = kChunkUnits / F::kUnits;
  const std::size_t units = std::size_t{blocks} * F::kUnits;
  Unit<typename F::Shape> buffer[kChunkUnits];
  for (uint32_t t = 0; t < tokens; ++t) sums[t] = _mm512_setzero_ps();
  for (uint32_t b = 0; b < blocks; b += kBlocks) {
    const uint32_t here = blocks - b < kBlocks ? blocks - b : kBlocks;
    rows = unpack<F>(rows, here, buffer, ahead);
    const ActivationUnit* tile = x;
    for (uint32_t t = 0; t < tokens; t += kTileTokens) {
      const uint32_t count = tokens - t < kTileTokens ? tokens - t : kTileTokens;
      Tiles::template add<typename F::Shape>(buffer, here * F::kUnits,
                                             tile + std::size_t{b} * F::kUnits * count, count, sums + t);
      tile += units * count;
    }
  }
}

// ---- the whole product

template <class F, class Tiles>
void product_lanes(const ProductArgs& args) {
  // The last sixteen rows may begin with rows that came before, or are not ours; a matrix that has no sixteen
  // goes elsewhere.
  if (args.row_end < kRows) return avx2::kTypes[static_cast<uint32_t>(F::kType)].product_q8(args);
  const uint32_t blocks = args.cols / (32 * F::kUnits);
  const uint32_t units = args.cols / 32;
  // A tile that is not full may be read as if it were.
  const std::size_t records = std::size_t{args.tokens} * units + kTileTokens;
  auto* x = static_cast<ActivationUnit*>(activation_scratch(records * sizeof(ActivationUnit)));
  for (uint32_t t = 0; t < args.tokens; t += kTileTokens) {
    const uint32_t count = args.tokens - t < kTileTokens ? args.tokens - t : kTileTokens;
    prepare_tile<F>(args.q8 + t, count, units, x + std::size_t{t} * units);
  }
  if (args.tokens > 1) Tiles::template begin<typename F::Shape>();
  const Floats scale = spread_float(args.scale);
  const std::byte* end = args.weights + std::size_t{args.row_end} * args.row_bytes;
  for (uint32_t begin = args.row_begin; begin < args.row_end;) {
    const uint32_t left = args.row_end - begin;
    const uint32_t skip = left >= kRows ? 0 : kRows - left;  // lanes of rows that are not ours
    const uint32_t row = begin - skip;
    const std::byte* weights = args.weights + std::size_t{row} * args.row_bytes;
    const Rows rows(reinterpret_cast<const uint8_t*>(weights), args.row_bytes);
    const bool last = left <= kRows;
    ReadAhead ahead = last ? ReadAhead(args.next.data(), args.next.data() + args.next.size())
                           : ReadAhead(weights + kRows * args.row_bytes, end);
    Floats sums[kTokensMax];
    if (args.tokens == 1) {
      sums[0] = product_one<F>(rows, blocks, x, ahead);
    } else {
      product_many<F, Tiles>(rows, blocks, x, args.tokens, sums, ahead);
    }
    const auto ours = static_cast<__mmask16>(0xffffu << skip);
    for (uint32_t t = 0; t < args.tokens; ++t)
      _mm512_mask_storeu_ps(args.y[t] + row, ours, _mm512_mul_ps(sums[t], scale));
    begin = row + kRows;
  }
  if (args.tokens > 1) Tiles::template end<typename F::Shape>();
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
