#pragma once
// Products for many tokens, bound by arithmetic. A block of 8 warps computes a square of rows and tokens,
// unit after unit. Per chunk: the copied blocks of the rows are decoded to signed bytes and scales; then each
// warp multiplies its part, 16 rows by 8 tokens at a time, on the tensor cores (or with dot products of 4
// bytes below sm_80): one exact integer for each row and token, which enters the chain at once. Meanwhile the
// next chunk is copied, and warps that have finished decode it while others still multiply.
//
// Integers become floats without a conversion, which is slow: sums start at the bits of 1.5 * 2^23, so that
// as floats they are that much too large (|dot| < 2^22). Integer scales multiply as floats: the results are
// integers below 2^24, exact. Where scales of 16 values are small (Q2_K), the signed bytes are weights times
// scales instead, and the sum with the minimums is one more product of the tensor cores, of rows in which the
// minimum stands for each weight.

#include "gpu-worker/cuda/products_q8_source.cuh"
#include "gpu-worker/cuda/products_q8_unit.cuh"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kTileThreads = 256;

// A square of kSide rows and tokens; each warp computes kWarpRows by kWarpTokens of it.
template <int kSide_, int kWarpRows_, int kWarpTokens_>
struct TileShape {
  static constexpr int kSide = kSide_;
  static constexpr int kWarpRows = kWarpRows_;
  static constexpr int kWarpTokens = kWarpTokens_;
  static constexpr int kUnits = kTileThreads / kSide;  // in a chunk: one for each thread
  static_assert(kSide / kWarpRows * (kSide / kWarpTokens) == kTileThreads / kWarp);
};
using LargeTile = TileShape<128, 32, 64>;
using SmallTile = TileShape<64, 16, 32>;

// Numbers of each unit and each row or token, if the format has any; neighbouring ones are loaded together.
// Where threads write, those of a warp have all units of a few rows: the units lie apart by what avoids bank
// conflicts.
template <class S, int kCount, class T = float>
struct alignas(16) TilePlanes {
  T at[kCount][S::kUnits][S::kSide + kWarp / S::kUnits];
};
template <class S, class T>
struct TilePlanes<S, 0, T> {};

// What a unit consists of in shared memory.
template <class F>
struct TileUnit {
  static constexpr bool kBaked =
      F::kScalesFitBytes;  // scales into the weights, minimums multiplied like them
  static constexpr bool kHalves = UnitShape<F>::kHalves && !kBaked;
  static constexpr int kFactors = UnitShape<F>::kFactors;
  static constexpr int kGroups = kBaked ? 1 : UnitShape<F>::kGroups;
  static constexpr int kScales = F::kScaleGroup != 0 && !kBaked ? kGroups : 0;
  static constexpr int kMinimums = F::kIntegerMinimum && !kBaked ? kGroups : 0;
  static constexpr int kSums = F::kMinimum && !kBaked ? kGroups : 0;
};

// A decoded chunk. Units of rows and of tokens: [unit][row or token].
template <class F, class S>
struct TileChunk {
  using Shape = TileUnit<F>;
  // Units are apart by half a unit more: no bank conflicts where they are written.
  alignas(16) uint32_t weights[S::kUnits][S::kSide * 8 + 4];
  TilePlanes<S, Shape::kFactors> factor;
  TilePlanes<S, Shape::kScales> scale;
  TilePlanes<S, F::kMinimum ? 1 : 0> minimum_factor;
  TilePlanes<S, Shape::kMinimums> minimum;
  TilePlanes<S, Shape::kBaked ? 2 : 0, uint32_t> minimum_bytes;  // of each group, four times
  TilePlanes<S, 1> d;
  TilePlanes<S, Shape::kSums> sum;  // of each group of the unit
};

// The block's shared memory.
template <class F, class S>
struct TileMemory {
  static constexpr size_t kMost = 64 * 1024;  // on sm_75
  // A block may be longer than a chunk: it is copied once and decoded in parts.
  static constexpr int kRawUnits = F::kUnits > S::kUnits ? F::kUnits : S::kUnits;
  static constexpr int kRawBytes = kRawUnits / F::kUnits * F::kBlockBytes;
  static constexpr int kRawPitch = (kRawBytes + 30) / 16 * 16;

  // How many chunks are copied ahead: where there is room two, as few tokens take less time than a copy.
  static constexpr int kAhead = S::kSide == 64 && kRawPitch <= 160 ? 2 : 1;

  struct Copied {
    // Units are apart by a whole one or two more.
    alignas(16) uint32_t q[kAhead + 1][S::kUnits][S::kSide * 8 + kWarp / S::kUnits];
    uint8_t raw[kAhead][S::kSide][kRawPitch];
  };
  // Where there is room, warps decode the next chunk while others still multiply this one.
  static constexpr int kDecoded = sizeof(Copied) + 2 * sizeof(TileChunk<F, S>) <= kMost ? 2 : 1;

  Copied copied;
  TileChunk<F, S> decoded[kDecoded];
};

template <class F, class S, bool kTensorCores>
class TileProduct {
 public:
  __device__ TileProduct(const ProductTile& tile, uint32_t first_token, TileMemory<F, S>& memory)
      : tile_(tile), memory_(memory), first_token_(first_token), own_unit_(threadIdx.x / S::kSide) {
    const uint32_t row = threadIdx.x / S::kUnits;
    own_weights_ = tile.weights + (row < tile.row_count ? row : tile.row_count - 1) * tile.row_bytes;
    own_row_ = tile.x_row(clamped_token(threadIdx.x % S::kSide));
    for (int i = 0; i < 2; ++i) copied_rows_[i] = tile.x_row(clamped_token(copied_token(i)));
  }

  __device__ void compute() {
    if (first_token_ + S::kSide <= tile_.tokens) {
      multiply<true>();
    } else {
      multiply<false>();
    }
    store();
  }

 private:
  using Memory = TileMemory<F, S>;
  using Chunk = TileChunk<F, S>;
  using Shape = TileUnit<F>;
  static constexpr uint32_t kAhead = Memory::kAhead;
  static constexpr int kRowTiles = S::kWarpRows / 16;
  static constexpr int kTokenTiles = S::kWarpTokens / 8;
  static constexpr int kDots = Shape::kHalves ? 2 : 1;

  // kFull: all tokens of the tile exist.
  template <bool kFull>
  __device__ void multiply() {
    constexpr bool kDecodesAhead = Memory::kDecoded == 2;
    const uint32_t chunks = (tile_.units + S::kUnits - 1) / S::kUnits;
    for (uint32_t c = 0; c < kAhead; ++c) copy(c);
    load_scales(0);
    if constexpr (kDecodesAhead) decode_copied(0);
    for (uint32_t c = 0; c < chunks; ++c) {
      if constexpr (!kDecodesAhead) decode_copied(c);
      __syncthreads();
      copy(c + kAhead);
      load_scales(c + 1);
#pragma unroll 1  // the registers of one unit are what there is
      for (int u = 0; u < S::kUnits; ++u)
        multiply_unit<kFull>(u, memory_.decoded[c % Memory::kDecoded], memory_.copied.q[c % (kAhead + 1)][u]);
      if (kDecodesAhead && c + 1 < chunks) decode_copied(c + 1);
    }
  }
  // Waits for the copies of chunk c, too.
  __device__ void decode_copied(uint32_t c) {
    copies_wait<kAhead - 1>();
    // Nobody multiplies with what is decoded there any more, and the copies of neighbours are there: those of
    // blocks of weights within the warp, those of activations (for their sums) in the whole block.
    if constexpr (Memory::kDecoded == 1 || Shape::kSums == 2) {
      __syncthreads();
    } else {
      __syncwarp();
    }
    decode(c, memory_.decoded[c % Memory::kDecoded]);
  }

  __device__ uint32_t clamped_token(uint32_t token) const {
    return first_token_ + token < tile_.tokens ? first_token_ + token : tile_.tokens - 1;
  }
  // Activations are copied in lines of 16 bytes, 2 a thread, all of a token's chunk by neighbours.
  __device__ static uint32_t copied_token(int i) {
    return (threadIdx.x + i * kTileThreads) / (2 * S::kUnits);
  }

  // Begins to copy chunk c, if it exists, once the one kAhead before it is decoded.
  __device__ void copy(uint32_t c) {
    const uint32_t first = c * S::kUnits, buffer = c % (kAhead + 1);
    if (first < tile_.units && first % Memory::kRawUnits == 0) copy_raw(first);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t line = (threadIdx.x + i * kTileThreads) % (2 * S::kUnits);
      if (first + line / 2 < tile_.units) {
        copy16_async(&memory_.copied.q[buffer][line / 2][8 * copied_token(i) + 4 * (line % 2)],
                     copied_rows_[i] + 32 * uint64_t{first} + 16 * line);
      }
    }
    copies_commit();
  }
  // What decode(c) will need beside the copies.
  __device__ void load_scales(uint32_t c) {
    d_ = 0.0f;
    sum_ = 0;
    const uint32_t unit = c * S::kUnits + own_unit_;
    if (unit < tile_.units) {
      const std::byte* scales = own_row_ + 32 * uint64_t{tile_.units} + 4 * unit;
      d_ = __ldg(reinterpret_cast<const float*>(scales));
      if constexpr (Shape::kSums != 0)
        sum_ = __ldg(reinterpret_cast<const int*>(scales + 4 * uint64_t{tile_.units}));
    }
  }

  // The thread's row of weights, which it copies together with kUnits - 1 neighbours, and decodes with them.
  __device__ const uint8_t* raw_begin(uint32_t first_unit) const {
    return own_weights_ + first_unit / F::kUnits * F::kBlockBytes;
  }
  __device__ void copy_raw(uint32_t first_unit) {
    const uint32_t rest = (tile_.units - first_unit) / F::kUnits * F::kBlockBytes;
    const uint32_t bytes = rest < Memory::kRawBytes ? rest : uint32_t{Memory::kRawBytes};
    const uint8_t* begin = raw_begin(first_unit);
    const uint32_t before = bytes_before(begin);
    uint8_t* to = memory_.copied.raw[first_unit / Memory::kRawUnits % kAhead][threadIdx.x / S::kUnits];
#pragma unroll
    for (uint32_t first = 0; first < Memory::kRawPitch; first += 16 * S::kUnits) {
      const uint32_t at = first + 16 * (threadIdx.x % S::kUnits);
      if (at < before + bytes) copy16_async(to + at, begin - before + at);
    }
  }

  // One unit of a row and one of a token for each thread. Units behind the end become zeros.
  __device__ void decode(uint32_t c, Chunk& to) {
    const uint32_t row = threadIdx.x / S::kUnits, u = threadIdx.x % S::kUnits;
    const uint32_t unit = c * S::kUnits + u, raw_unit = unit % Memory::kRawUnits;
    const uint8_t* raw =
        memory_.copied.raw[unit / Memory::kRawUnits % kAhead][row] + bytes_before(raw_begin(unit - raw_unit));
    WeightUnit<F> w = {};
    if (unit < tile_.units) w.load(raw + raw_unit / F::kUnits * F::kBlockBytes, raw_unit % F::kUnits);
    uint32_t bytes[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bytes[i] = unit < tile_.units ? minus_bytes<F::kOffset>(w.w[i]) : 0;
      if constexpr (Shape::kBaked) bytes[i] *= static_cast<uint32_t>(w.scale[i / 4]);
    }
    auto* lines = reinterpret_cast<uint4*>(&to.weights[u][8 * row]);
    lines[0] = make_uint4(bytes[0], bytes[1], bytes[2], bytes[3]);
    lines[1] = make_uint4(bytes[4], bytes[5], bytes[6], bytes[7]);
#pragma unroll
    for (int i = 0; i < Shape::kFactors; ++i) to.factor.at[i][u][row] = w.factor[i];
    if constexpr (F::kMinimum) to.minimum_factor.at[0][u][row] = w.minimum_factor;
    if constexpr (Shape::kBaked) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        to.minimum_bytes.at[i][u][row] = 0x01010101u * static_cast<uint32_t>(w.minimum[i]);
    }
#pragma unroll
    for (int i = 0; i < Shape::kGroups; ++i) {
      if constexpr (Shape::kScales != 0) to.scale.at[i][u][row] = static_cast<float>(w.scale[i]);
      if constexpr (Shape::kMinimums != 0) to.minimum.at[i][u][row] = static_cast<float>(w.minimum[i]);
    }

    const uint32_t token = threadIdx.x % S::kSide;
    to.d.at[0][own_unit_][token] = d_;
    if constexpr (Shape::kSums == 1) to.sum.at[0][own_unit_][token] = static_cast<float>(sum_);
    if constexpr (Shape::kSums == 2) {
      int first = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        first = dot4(static_cast<int>(memory_.copied.q[c % (kAhead + 1)][own_unit_][8 * token + i]),
                     0x01010101, first);
      const bool there = c * S::kUnits + own_unit_ < tile_.units;
      to.sum.at[0][own_unit_][token] = static_cast<float>(there ? first : 0);
      to.sum.at[1][own_unit_][token] = static_cast<float>(there ? sum_ - first : 0);
    }
  }

  // What a lane holds of 16 rows: rows g and g + 8 (g = lane / 4).
  struct Rows {
    uint32_t a[4];
    float factor[2][Shape::kFactors];
    float scale[2][Shape::kGroups];
    float minimum_factor[2];
    float minimum[2][Shape::kGroups];
    uint32_t minimum_bytes[4];  // in the place of `a`
  };
  // Which words of a unit the lane holds: in a sum over 32 values any two will do, as long as rows and tokens
  // agree; two neighbours are one load. In sums over 16 one from each half.
  __device__ static void load_words_of(const uint32_t* unit, uint32_t& first, uint32_t& last) {
    if constexpr (Shape::kHalves) {
      first = unit[first_word()];
      last = unit[last_word()];
    } else {
      const uint2 both = *reinterpret_cast<const uint2*>(&unit[first_word()]);
      first = both.x;
      last = both.y;
    }
  }
  __device__ static uint32_t first_word() { return lane_index() % 4 * (Shape::kHalves ? 1 : 2); }
  __device__ static uint32_t last_word() { return first_word() + (Shape::kHalves ? 4 : 1); }
  // What the tensor cores read of rows are four registers in a row, but neighbours in memory are not
  // neighbours there: loaded together they would be moved again before every product.
  __device__ static uint32_t load_alone(const uint32_t* word) {
    return *static_cast<const volatile uint32_t*>(word);
  }
  __device__ void load_rows(const Chunk& chunk, int u, uint32_t row, Rows& rows) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t r = row + lane_index() / 4 + 8 * half;
      if constexpr (kTensorCores) {
        rows.a[half] = load_alone(&chunk.weights[u][8 * r + first_word()]);
        rows.a[2 + half] = load_alone(&chunk.weights[u][8 * r + last_word()]);
      }
#pragma unroll
      for (int i = 0; i < Shape::kFactors; ++i) rows.factor[half][i] = chunk.factor.at[i][u][r];
      if constexpr (F::kMinimum) rows.minimum_factor[half] = chunk.minimum_factor.at[0][u][r];
      if constexpr (Shape::kBaked) {
        const uint32_t* m = &chunk.minimum_bytes.at[lane_index() % 4 / 2][u][r];
        rows.minimum_bytes[half] = load_alone(m);
        rows.minimum_bytes[2 + half] = load_alone(m);
      }
#pragma unroll
      for (int i = 0; i < Shape::kGroups; ++i) {
        if constexpr (Shape::kScales != 0) rows.scale[half][i] = chunk.scale.at[i][u][r];
        if constexpr (Shape::kMinimums != 0) rows.minimum[half][i] = chunk.minimum.at[i][u][r];
      }
    }
  }

  // Products of 16 rows and 8 tokens in the layout of mma_s8_k32, as floats: dots[i][e], of each half i if
  // they are apart; minimums[e], if the sums with minimums come from the tensor cores, too.
  __device__ void multiply_tile(const Rows& rows, const uint32_t (&b)[2], int u, const Chunk& chunk,
                                const uint32_t* q, uint32_t row, uint32_t token, float (&dots)[kDots][4],
                                float (&minimums)[4]) const {
    int sums[kDots][4], minimum_sums[4] = {};
    if constexpr (kTensorCores && kDots == 1) {
      mma_s8_k32(sums[0], rows.a, b, kSumBegin);
      if constexpr (Shape::kBaked) {
        mma_s8_k32(minimum_sums, rows.minimum_bytes, b, kSumBegin);
      }
    } else if constexpr (kTensorCores) {
      mma_s8_k16(sums[0], {rows.a[0], rows.a[1]}, b[0], kSumBegin);
      mma_s8_k16(sums[1], {rows.a[2], rows.a[3]}, b[1], kSumBegin);
    } else {
      const uint32_t g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const uint32_t r = row + g + 8 * (e / 2);
        const auto& w = reinterpret_cast<const uint32_t(&)[8]>(chunk.weights[u][8 * r]);
        const auto& x = reinterpret_cast<const uint32_t(&)[8]>(q[8 * (token + 2 * t + e % 2)]);
        sums[0][e] = dot_half<0>(w, x, kSumBegin);
        sums[kDots - 1][e] = dot_half<4>(w, x, kDots == 1 ? sums[0][e] : kSumBegin);
        if constexpr (Shape::kBaked) {
          const uint32_t first = chunk.minimum_bytes.at[0][u][r], last = chunk.minimum_bytes.at[1][u][r];
          minimum_sums[e] =
              dot_half<4>({first, first, first, first, last, last, last, last}, x,
                          dot_half<0>({first, first, first, first, last, last, last, last}, x, kSumBegin));
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int i = 0; i < kDots; ++i) dots[i][e] = float_of_sum(sums[i][e]);
      if constexpr (Shape::kBaked) minimums[e] = float_of_sum(minimum_sums[e]);
    }
  }

  // The warp's n-th 8 tokens. Warps side by side take turns: where tokens fill no tile, none has nothing to
  // do.
  __device__ static uint32_t token_of(int n) {
    constexpr uint32_t kWarpsDown = S::kSide / S::kWarpRows, kWarpsAcross = S::kSide / S::kWarpTokens;
    return 8 * (n * kWarpsAcross + warp_index() / kWarpsDown);
  }
  __device__ static uint32_t row_of_warp() { return warp_index() % (S::kSide / S::kWarpRows) * S::kWarpRows; }

  // What a lane holds of 8 tokens: words of token lane / 4, numbers of the two that its sums are of.
  struct Tokens {
    uint32_t b[2] = {};
    float2 d;
    float2 sums[Shape::kGroups] = {};
  };
  __device__ void load_tokens(int u, const Chunk& chunk, const uint32_t* q, int n, Tokens& tokens) const {
    const uint32_t token = token_of(n), mine = token + 2 * (lane_index() % 4);
    if constexpr (kTensorCores) load_words_of(&q[8 * (token + lane_index() / 4)], tokens.b[0], tokens.b[1]);
    tokens.d = *reinterpret_cast<const float2*>(&chunk.d.at[0][u][mine]);
    if constexpr (Shape::kSums != 0) {
#pragma unroll
      for (int i = 0; i < Shape::kGroups; ++i)
        tokens.sums[i] = *reinterpret_cast<const float2*>(&chunk.sum.at[i][u][mine]);
    }
  }

  // Unless kFull, the warp stops behind the last token; loads do not move before that decision, so where
  // there are registers left they are made early here.
  template <bool kFull>
  __device__ void multiply_unit(int u, const Chunk& chunk, const uint32_t* q) {
    const uint32_t first_row = row_of_warp();
    Rows rows[kRowTiles];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) load_rows(chunk, u, first_row + 16 * m, rows[m]);
    constexpr bool kEarly = !kFull && kRowTiles == 1;
    Tokens next;
    if constexpr (kEarly) load_tokens(u, chunk, q, 0, next);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      Tokens tokens;
      if constexpr (!kFull) {
        if (first_token_ + token_of(n) >= tile_.tokens) break;
      }
      if constexpr (kEarly) {
        tokens = next;
        if (n + 1 < kTokenTiles) load_tokens(u, chunk, q, n + 1, next);
      } else {
        load_tokens(u, chunk, q, n, tokens);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        float dots[kDots][4], minimums[4];
        multiply_tile(rows[m], tokens.b, u, chunk, q, first_row + 16 * m, token_of(n), dots, minimums);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float2 &first = tokens.sums[0], &last = tokens.sums[Shape::kGroups - 1];
          float sum[2] = {e % 2 == 0 ? first.x : first.y, e % 2 == 0 ? last.x : last.y};
          if constexpr (Shape::kBaked) sum[0] = minimums[e];
          const float dot[2] = {dots[0][e], dots[kDots - 1][e]};
          add_unit(acc_[m][n][e], rows[m], e / 2, dot, e % 2 == 0 ? tokens.d.x : tokens.d.y, sum);
        }
      }
    }
  }

  // The chain of docs/numerics.md for one row and token.
  __device__ static void add_unit(float& acc, const Rows& rows, int half, const float (&dot)[2], float d,
                                  const float (&sum)[2]) {
    const float product_factor = rows.factor[half][0] * d;
    if constexpr (F::kFactorPer16) {
      acc = fmaf(product_factor, dot[0], acc);
      acc = fmaf(rows.factor[half][Shape::kFactors - 1] * d, dot[1], acc);
    } else {
      float isum = dot[0];
      if constexpr (Shape::kScales != 0) isum *= rows.scale[half][0];
      if constexpr (Shape::kScales == 2) isum = fmaf(rows.scale[half][1], dot[1], isum);
      acc = fmaf(product_factor, isum, acc);
    }
    if constexpr (F::kMinimum) {
      float msum = sum[0];
      if constexpr (Shape::kMinimums != 0) msum *= rows.minimum[half][0];
      if constexpr (Shape::kMinimums == 2) msum = fmaf(rows.minimum[half][1], sum[1], msum);
      acc = fmaf(rows.minimum_factor[half] * d, msum, acc);
    }
  }

  __device__ void store() const {
    const uint32_t row = row_of_warp() + lane_index() / 4;
    bool exists[2 * kRowTiles];
#pragma unroll
    for (uint32_t m = 0; m < 2 * kRowTiles; ++m) exists[m] = row + 8 * m < tile_.row_count;
    const auto token = [&](int i) {
      return first_token_ + token_of(i / 2) + 2 * (lane_index() % 4) + static_cast<uint32_t>(i % 2);
    };
    uint32_t out_row[2 * kTokenTiles];  // all under way before the first is needed
#pragma unroll
    for (int i = 0; i < 2 * kTokenTiles; ++i)
      out_row[i] = tile_.out_row_index(token(i) < tile_.tokens ? token(i) : 0);
#pragma unroll
    for (int i = 0; i < 2 * kTokenTiles; ++i) {
      float* out = tile_.out + out_row[i] * tile_.out_stride + row;
#pragma unroll
      for (int m = 0; m < 2 * kRowTiles; ++m) {
        if (exists[m] && token(i) < tile_.tokens)
          out[8 * m] = acc_[m / 2][i / 2][2 * (m % 2) + i % 2] * tile_.scale;
      }
    }
  }

  const ProductTile& tile_;
  Memory& memory_;
  const uint32_t first_token_, own_unit_;
  const uint8_t* own_weights_;       // the row of weights that this thread copies and decodes
  const std::byte* own_row_;         // the token whose d and sum this thread copies
  const std::byte* copied_rows_[2];  // those whose q
  float d_ = 0.0f;
  int sum_ = 0;
  float acc_[kRowTiles][kTokenTiles][4] = {};
};

}  // namespace strata::gpu_worker::cuda
