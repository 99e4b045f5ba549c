#pragma once
// Tiles of tokens by AMX int8: one instruction multiplies 16 tokens with 16 rows, over the 32 (or 16) values
// of a unit. The sums are exact, so what is done with them afterwards (product_lanes.h) is the same.

#include "services/quant/tiles_avx512.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// The instructions, as assembly that says that memory is read and written: the compiler's own functions do
// not (GCC 12).
template <int kTile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
inline void tile_load(const void* rows, std::size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_store(void* rows, std::size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
}
// sums += signed activations times unsigned weights
template <int kSums, int kActivations, int kWeights>
inline void tile_dot() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kActivations), "i"(kWeights));
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles 0-3: sums (16 tokens, 16 rows); 4, 5: activations (16 tokens, 32 values); 6, 7: weights (8 groups of
// 4 values, 16 rows).
inline constexpr TileConfig kTileConfig = [] {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = tile == 4 || tile == 5 ? 32 : 64;
    config.rows[tile] = tile < 6 ? 16 : 8;
  }
  return config;
}();

class AmxTiles {
 public:
  // Below that many tokens the vector instructions are as fast.
  static constexpr uint32_t kTokensMin = 12;

  template <class F>
  static void begin(uint32_t tokens) {
    if constexpr (!F::Shape::kHalves) {
      if (tokens >= kTokensMin) asm volatile("ldtilecfg %0" : : "m"(kTileConfig) : "memory");
    }
  }
  template <class F>
  static void end(uint32_t tokens) {
    if constexpr (!F::Shape::kHalves) {
      if (tokens >= kTokensMin) asm volatile("tilerelease" : : : "memory");
    }
  }

  template <class F>
  STRATA_LANES_INLINE static Dots<typename F::Shape> dots(const Unit<typename F::Shape>& u,
                                                          const ActivationUnit& x) {
    return VectorTiles::dots<F>(u, x);
  }

  template <class F>
  static void add(const Unit<typename F::Shape>* units, uint32_t count, const ActivationUnit* x,
                  uint32_t tokens, Floats* sums) {
    // Halves would need two tiles of half the depth, each to be stored: measured slower than vectors.
    if constexpr (F::Shape::kHalves) {
      VectorTiles::add<F>(units, count, x, tokens, sums);
    } else if (tokens < kTokensMin) {
      VectorTiles::add<F>(units, count, x, tokens, sums);
    } else {
      alignas(64) int32_t dots[kChunkUnits][kTileTokens][kRows];
      multiply(units, count, x, tokens, dots);
      add_dots(units, count, x, tokens, dots, sums);
    }
  }

 private:
  using Sums = int32_t[kTileTokens][kRows];

  // Tiles by turns, so that loads and stores run beside products. A tile of fewer tokens reads what follows
  // them, for nothing.
  template <class S>
  static void multiply(const Unit<S>* units, uint32_t count, const ActivationUnit* x, uint32_t tokens,
                       Sums* dots) {
    for (uint32_t i = 0; i < count; i += 4) {
      multiply_one<0>(units, i, count, x, tokens, dots);
      multiply_one<1>(units, i + 1, count, x, tokens, dots);
      multiply_one<2>(units, i + 2, count, x, tokens, dots);
      multiply_one<3>(units, i + 3, count, x, tokens, dots);
    }
  }
  template <int kTile, class S>
  static void multiply_one(const Unit<S>* units, uint32_t i, uint32_t count, const ActivationUnit* x,
                           uint32_t tokens, Sums* dots) {
    if (i >= count) return;
    tile_zero<kTile>();
    tile_load<4 + kTile % 2>(x[std::size_t{i} * tokens].q, sizeof(ActivationUnit));
    tile_load<6 + kTile % 2>(units[i].w, sizeof(Vec));
    tile_dot<kTile, 4 + kTile % 2, 6 + kTile % 2>();
    tile_store<kTile>(dots[i], sizeof dots[0][0]);
  }

  template <class S>
  static void add_dots(const Unit<S>* units, uint32_t count, const ActivationUnit* x, uint32_t tokens,
                       const Sums* dots, Floats* sums) {
    for (uint32_t t = 0; t < tokens; ++t) {
      Floats acc = sums[t];
      for (uint32_t i = 0; i < count; ++i) {
        const ActivationUnit& at = x[std::size_t{i} * tokens + t];
        Dots<S> dot = dot_starts(units[i], at);
        dot.of[0] = _mm512_add_epi32(dot.of[0], _mm512_load_si512(dots[i][t]));
        acc = add_unit(acc, units[i], dot, at);
      }
      sums[t] = acc;
    }
  }
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
