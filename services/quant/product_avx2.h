#pragma once
// Products of quantized weights with 8-bit activations by lanes, with AVX2: eight rows of W at a time, lane r
// the one accumulator of row r (docs/numerics.md, "Products of quantized weights").
//
// One token: blocks are turned into units in registers and used at once. More tokens: the units of 256
// columns are written to a buffer in the first-level cache and used for all tokens, so that weights are read
// and unpacked once.

#include "services/quant/code_books_avx2.h"
#include "services/quant/kernels.h"
#include "services/quant/scratch.h"
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// One token's activations of a unit, as kernels read them: a cache line.
struct alignas(64) ActivationUnit {
  int8_t q[32];      // in the order of the format: lane value j meets w[j]
  int32_t start[2];  // -kOffset * sum, where the dot products begin: of the halves, or of the unit and 0
  float sum[2];      // the sums: of the halves, or of the unit and 0
  float d;

  Vec four(int j) const {
    uint32_t bytes;
    __builtin_memcpy(&bytes, q + 4 * j, sizeof bytes);
    return spread(bytes);
  }
};
static_assert(sizeof(ActivationUnit) == 64);

inline constexpr uint32_t kChunkUnits = 8;  // units in the buffer: 256 columns
inline constexpr uint32_t kTokensMax = 64;  // of one call

// ---- activations

template <class F>
inline void prepare_unit(const Q8Row& row, uint32_t unit, ActivationUnit& out) {
  __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(row.q + 32 * std::size_t{unit}));
  if constexpr (F::kOrder == Order::kStride4) {
    q = _mm256_shuffle_epi8(
        q, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(out.q), q);
  out.d = row.d[unit];
  int32_t sum[2] = {row.sum[unit], 0};
  if constexpr (F::Shape::kHalves) {
    // Sums of 8 bytes made unsigned; 16 of them are 2048 too much.
    const __m256i eights =
        _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m128i first = _mm256_castsi256_si128(eights);
    sum[0] = _mm_cvtsi128_si32(_mm_add_epi64(first, _mm_unpackhi_epi64(first, first))) - 2048;
    sum[1] = row.sum[unit] - sum[0];
  }
  for (int half = 0; half < 2; ++half) {
    out.start[half] = -F::kOffset * sum[half];
    out.sum[half] = static_cast<float>(sum[half]);
  }
}

// ---- one unit of eight rows, kTokens tokens

// of[h][t]: with token t, of the halves of the unit (of the whole, h = 0).
template <class S, int kTokens>
struct Dots {
  Vec of[S::kHalves ? 2 : 1][kTokens];
};

template <class F, int kTokens>
STRATA_LANES_INLINE Dots<typename F::Shape, kTokens> dots(const Unit<typename F::Shape>& u,
                                                          const ActivationUnit* x) {
  constexpr int kParts = F::Shape::kHalves ? 2 : 1;
  constexpr int kWords = 8 / kParts;
  Dots<typename F::Shape, kTokens> dot;
  unrolled<kParts>([&](auto part) STRATA_LANES_LAMBDA {
    unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA {
      dot.of[part][t] = spread(static_cast<uint32_t>(x[t].start[part]));
    });
    add_dots<F::kMax, kWords, kTokens>(dot.of[part], u.w + kWords * part,
                                       [&](int t, int j)
                                           STRATA_LANES_LAMBDA { return x[t].four(kWords * part + j); });
  });
  return dot;
}

// The expression of docs/numerics.md. Integers are below 2^24, so their products and sums as floats are
// exact.
template <class S, int kTokens>
STRATA_LANES_INLINE Floats add_unit(Floats acc, const Unit<S>& u, const Dots<S, kTokens>& dot, int t,
                                    const ActivationUnit& x) {
  const Floats d = spread_lanes(x.d);
  Floats isum = to_floats(dot.of[0][t]);
  if constexpr (S::kFactors) {
    acc = fma(mul(u.factor[0], d), isum, acc);
    return fma(mul(u.factor[1], d), to_floats(dot.of[1][t]), acc);
  }
  if constexpr (S::kScaled) isum = mul(u.scale[0], isum);
  if constexpr (S::kHalves) isum = fma(u.scale[1], to_floats(dot.of[1][t]), isum);
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

// Fetches what is read after the present eight rows, evenly while these are used.
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

// ---- eight rows

// body(unit, k) for the units of a number of blocks in a row. Flat: blocks and units are only fast in
// registers.
template <class F, class Body>
STRATA_LANES_INLINE Rows for_units(Rows rows, uint32_t blocks, ReadAhead& ahead, Body body) {
  for (uint32_t b = 0; b < blocks; ++b) {
    typename F::Block block(rows);
    unrolled<F::kUnits>([&](auto k) STRATA_LANES_LAMBDA {
      Unit<typename F::Shape> unit;
      block.template unit<k>(unit);
      body(unit);
    });
    rows.row0 += F::kBlockBytes;
    ahead.step<F::kBlockBytes * kRows>();
  }
  return rows;
}

template <class F>
[[gnu::flatten]] Floats product_one(Rows rows, uint32_t blocks, const ActivationUnit* x, ReadAhead& ahead) {
  Floats acc = zero_lanes();
  for_units<F>(rows, blocks, ahead, [&](const Unit<typename F::Shape>& unit) STRATA_LANES_LAMBDA {
    acc = add_unit(acc, unit, dots<F, 1>(unit, x), 0, *x);
    ++x;
  });
  return acc;
}

// Turns blocks into units; returns what follows them.
template <class F>
[[gnu::flatten]] Rows unpack(Rows rows, uint32_t blocks, Unit<typename F::Shape>* out, ReadAhead& ahead) {
  return for_units<F>(rows, blocks, ahead,
                      [&](const Unit<typename F::Shape>& unit) STRATA_LANES_LAMBDA { *out++ = unit; });
}

// sums[t] += the buffered units times kTokens tokens, whose activations are x[unit * stride + t].
template <class F, int kTokens>
void add_tile(const Unit<typename F::Shape>* units, uint32_t count, const ActivationUnit* x, uint32_t stride,
              Floats* sums) {
  Floats acc[kTokens];
  unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA { acc[t] = sums[t]; });
  for (uint32_t i = 0; i < count; ++i) {
    const auto dot = dots<F, kTokens>(units[i], x);
    unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA { acc[t] = add_unit(acc[t], units[i], dot, t, x[t]); });
    x += stride;
  }
  unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA { sums[t] = acc[t]; });
}

// sums[t] of all tokens; x[unit * tokens + t].
template <class F>
void product_many(Rows rows, uint32_t blocks, const ActivationUnit* x, uint32_t tokens, Floats* sums,
                  ReadAhead& ahead) {
  constexpr uint32_t kBlocks = kChunkUnits / F::kUnits;
  Unit<typename F::Shape> buffer[kChunkUnits];
  for (uint32_t t = 0; t < tokens; ++t) sums[t] = zero_lanes();
  for (uint32_t b = 0; b < blocks; b += kBlocks) {
    const uint32_t here = blocks - b < kBlocks ? blocks - b : kBlocks;
    const uint32_t units = here * F::kUnits;
    rows = unpack<F>(rows, here, buffer, ahead);
    uint32_t t = 0;
    for (; t + 4 <= tokens; t += 4) add_tile<F, 4>(buffer, units, x + t, tokens, sums + t);
    for (; t + 2 <= tokens; t += 2) add_tile<F, 2>(buffer, units, x + t, tokens, sums + t);
    if (t < tokens) add_tile<F, 1>(buffer, units, x + t, tokens, sums + t);
    x += std::size_t{units} * tokens;
  }
}

// ---- the whole product

template <class F>
void product_lanes(const ProductArgs& args) {
  // The last eight rows may begin with rows that came before, or are not ours; a matrix that has no eight
  // goes elsewhere.
  if (args.row_end < kRows) return avx2::kTypes[static_cast<uint32_t>(F::kType)].product_q8(args);
  const uint32_t units = args.cols / 32;
  const uint32_t blocks = units / F::kUnits;
  auto* x = static_cast<ActivationUnit*>(
      activation_scratch(std::size_t{args.tokens} * units * sizeof(ActivationUnit)));
  for (uint32_t unit = 0; unit < units; ++unit) {
    for (uint32_t t = 0; t < args.tokens; ++t)
      prepare_unit<F>(args.q8[t], unit, x[std::size_t{unit} * args.tokens + t]);
  }
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
    Floats sums[kTokensMax];
    if (args.tokens == 1) {
      sums[0] = product_one<F>(rows, blocks, x, ahead);
    } else {
      product_many<F>(rows, blocks, x, args.tokens, sums, ahead);
    }
    for (uint32_t t = 0; t < args.tokens; ++t) store_from(args.y[t] + row, skip, mul(sums[t], scale));
    begin = row + kRows;
  }
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
