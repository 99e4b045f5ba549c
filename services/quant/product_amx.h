#pragma once
// Tiles of tokens by AMX int8: one instruction multiplies 16 tokens with 16 rows, over the 32 (or 16) values
// of a unit. The sums are exact, so what is done with them afterwards (product_lanes.h) is the same.

#include "services/quant/product_lanes.h"

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

// Tiles 0-3: sums (16 tokens, 16 rows); 4, 5: activations (16 tokens, kValues bytes); 6, 7: weights (kValues
// / 4, 16 rows of 4).
constexpr TileConfig tile_config(int values) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? values : 64);
    config.rows[tile] = static_cast<uint8_t>(tile < 6 ? 16 : values / 4);
  }
  return config;
}

struct AmxTiles {
  // Below that many tokens the vector instructions are as fast.
  static constexpr uint32_t kTokensMin = 6;

  template <class S>
  static void begin() {
    static constexpr TileConfig kConfig = tile_config(S::kHalves ? 16 : 32);
    asm volatile("ldtilecfg %0" : : "m"(kConfig) : "memory");
  }
  static void end() { asm volatile("tilerelease" : : : "memory"); }

  template <class S>
  static void add(const Unit<S>* units, uint32_t count, const ActivationUnit* x, uint32_t tokens,
                  Floats* sums) {
    if (tokens < kTokensMin) return VectorTiles::add(units, count, x, tokens, sums);
    constexpr uint32_t kDots = S::kHalves ? 2 : 1;
    alignas(64) int32_t dots[kChunkUnits * kDots][kTileTokens][kRows];
    const std::size_t stride = sizeof(ActivationUnit);
    // Pairs, so that one's loads run beside the other's product. Rows of tokens that are not there read what
    // follows.
    for (uint32_t i = 0; i < count; ++i) {
      const ActivationUnit* at = x + std::size_t{i} * tokens;
      tile_zero<0>();
      tile_load<4>(at->q, stride);
      tile_load<6>(units[i].w, sizeof(Vec));
      tile_dot<0, 4, 6>();
      if constexpr (S::kHalves) {
        tile_zero<1>();
        tile_load<5>(at->q + 16, stride);
        tile_load<7>(units[i].w + 4, sizeof(Vec));
        tile_dot<1, 5, 7>();
        tile_store<1>(dots[2 * i + 1], sizeof dots[0][0]);
      } else if (i + 1 < count) {
        tile_zero<1>();
        tile_load<5>((at + tokens)->q, stride);
        tile_load<7>(units[i + 1].w, sizeof(Vec));
        tile_dot<1, 5, 7>();
        tile_store<1>(dots[i + 1], sizeof dots[0][0]);
      }
      tile_store<0>(dots[kDots * i], sizeof dots[0][0]);
      if constexpr (!S::kHalves) ++i;
    }
    for (uint32_t t = 0; t < tokens; ++t) {
      Floats acc = sums[t];
      for (uint32_t i = 0; i < count; ++i) {
        const ActivationUnit& at = x[std::size_t{i} * tokens + t];
        Dots<S> dot;
        for (uint32_t half = 0; half < kDots; ++half) {
          dot.of[half] = _mm512_add_epi32(_mm512_load_si512(dots[kDots * i + half][t]),
                                          _mm512_set1_epi32(at.start[half]));
        }
        acc = add_unit(acc, units[i], dot, at);
      }
      sums[t] = acc;
    }
  }
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
