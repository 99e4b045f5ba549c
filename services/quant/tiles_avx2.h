#pragma once
// Dot products by lanes with AVX2, with or without AVX-VNNI.

#include "services/quant/product_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

class VectorTiles {
 public:
  template <class F>
  static void begin(uint32_t /*tokens*/) {}
  template <class F>
  static void end(uint32_t /*tokens*/) {}

  template <class F>
  STRATA_LANES_INLINE static Dots<typename F::Shape> dots(const Unit<typename F::Shape>& unit,
                                                          const ActivationUnit& x) {
    return dots_of<F, 1>(unit, &x).with(0);
  }

  template <class F>
  static void add(const Unit<typename F::Shape>* units, uint32_t count, const ActivationUnit* x,
                  uint32_t tokens, Floats* sums) {
    uint32_t t = 0;
    for (; t + 4 <= tokens; t += 4) add_tokens<F, 4>(units, count, x + t, tokens, sums + t);
    for (; t + 2 <= tokens; t += 2) add_tokens<F, 2>(units, count, x + t, tokens, sums + t);
    if (t < tokens) add_tokens<F, 1>(units, count, x + t, tokens, sums + t);
  }

 private:
  // of[h][t]: of part h with token t.
  template <class S, int kTokens>
  struct DotsOfTokens {
    Vec of[S::kHalves ? 2 : 1][kTokens];
    STRATA_LANES_INLINE Dots<S> with(int t) const {
      if constexpr (S::kHalves) return {{of[0][t], of[1][t]}};
      return {{of[0][t]}};
    }
  };

  // Tokens together, so that sums of 16 bits need no more registers than there are.
  template <class F, int kTokens>
  STRATA_LANES_INLINE static DotsOfTokens<typename F::Shape, kTokens> dots_of(
      const Unit<typename F::Shape>& u, const ActivationUnit* x) {
    constexpr int kParts = F::Shape::kHalves ? 2 : 1;
    constexpr int kWords = 8 / kParts;
    DotsOfTokens<typename F::Shape, kTokens> dot;
    unrolled<kParts>([&](auto part) STRATA_LANES_LAMBDA {
      unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA {
        dot.of[part][t] = spread(static_cast<uint32_t>(x[t].start[part]));
      });
      add_dots<F::kMax, kWords, kTokens>(
          dot.of[part], u.w + kWords * part,
          [&](int t, int j) STRATA_LANES_LAMBDA { return spread_four(x[t].q + 4 * (kWords * part + j)); });
    });
    return dot;
  }

  template <class F, int kTokens>
  static void add_tokens(const Unit<typename F::Shape>* units, uint32_t count, const ActivationUnit* x,
                         uint32_t stride, Floats* sums) {
    Floats acc[kTokens];
    unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA { acc[t] = sums[t]; });
    for (uint32_t i = 0; i < count; ++i) {
      const auto dot = dots_of<F, kTokens>(units[i], x);
      unrolled<kTokens>([&](auto t)
                            STRATA_LANES_LAMBDA { acc[t] = add_unit(acc[t], units[i], dot.with(t), x[t]); });
      x += stride;
    }
    unrolled<kTokens>([&](auto t) STRATA_LANES_LAMBDA { sums[t] = acc[t]; });
  }
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
