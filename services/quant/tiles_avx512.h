#pragma once
// Dot products by lanes with AVX-512 and VNNI.

#include "services/quant/product_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

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

class VectorTiles {
 public:
  template <class F>
  static void begin(uint32_t /*tokens*/) {}
  template <class F>
  static void end(uint32_t /*tokens*/) {}

  template <class F>
  STRATA_LANES_INLINE static Dots<typename F::Shape> dots(const Unit<typename F::Shape>& u,
                                                          const ActivationUnit& x) {
    return dots_of(u, x);
  }

  template <class F>
  static void add(const Unit<typename F::Shape>* units, uint32_t count, const ActivationUnit* x,
                  uint32_t tokens, Floats* sums) {
    uint32_t t = 0;
    const auto take = [&]<uint32_t n>(std::integral_constant<uint32_t, n>) {
      for (; t + n <= tokens; t += n) add_tokens<n>(units, count, x + t, tokens, sums + t);
    };
    take(std::integral_constant<uint32_t, 16>{});
    take(std::integral_constant<uint32_t, 8>{});
    take(std::integral_constant<uint32_t, 4>{});
    take(std::integral_constant<uint32_t, 2>{});
    take(std::integral_constant<uint32_t, 1>{});
  }

 private:
  template <class S>
  STRATA_LANES_INLINE static Dots<S> dots_of(const Unit<S>& u, const ActivationUnit& x) {
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

  // By shapes, not formats: what the units were no longer matters.
  template <uint32_t kTokens, class S>
  static void add_tokens(const Unit<S>* units, uint32_t count, const ActivationUnit* x, uint32_t stride,
                         Floats* sums) {
    Floats acc[kTokens];
    for (uint32_t t = 0; t < kTokens; ++t) acc[t] = sums[t];
    for (uint32_t i = 0; i < count; ++i) {
      const Unit<S>& unit = units[i];
      // Unrolled, or sums and weights would not stay in registers.
#pragma GCC unroll 16
      for (uint32_t t = 0; t < kTokens; ++t) acc[t] = add_unit(acc[t], unit, dots_of(unit, x[t]), x[t]);
      x += stride;
    }
    for (uint32_t t = 0; t < kTokens; ++t) sums[t] = acc[t];
  }
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
