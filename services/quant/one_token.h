#pragma once
// Formats whose product with one token takes fewer instructions than by way of units (product_lanes.h): with
// many tokens a unit is made once and used often, with one it is made, used and gone.

#include "services/quant/activation_unit.h"
#include "services/quant/formats_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// What formats_lanes.h says of a Block, but that its units are multiplied at once: add<k>(acc, x) is
// add_unit() with unit k.
template <class F>
struct OneTokenBlock;
template <class F>
inline constexpr bool kHasOneTokenBlock = false;  // the others go by way of units
template <>
inline constexpr bool kHasOneTokenBlock<Q2_K> = true;

// Scales, minimums and what they meet are pairs of 16-bit integers, so that one instruction multiplies and
// adds a pair; all of it is exact.
template <>
struct OneTokenBlock<Q2_K> : Q2_K::Block {
  using Block::Block;

  template <int k>
  STRATA_LANES_INLINE Floats add(Floats acc, const ActivationUnit& x) {
    load_values<k>();
    constexpr int kByte = 2 * (k % 2);  // of the word of scales
    const Vec word = scales.word[k / 2];
    Vec isum;
    if constexpr (kWideDots) {
      isum = multiply_add_pairs(dots<2 * (k % 4)>(x),
                                and_(byte_pair<kByte, kByte + 1>(word), low_nibble_mask()));
    } else {
      isum = scaled_dots<k, kByte>(word, x);
    }
    const Vec minimums = shift16<4>(byte_pair<kByte, kByte + 1>(word));
    const Floats msum = to_floats(multiply_add_pairs(minimums, spread_four(x.sums)));
    const Floats d = spread_lanes(x.d);
    acc = fma(mul(factor, d), to_floats(isum), acc);
    return fma(mul(minimum_factor, d), msum, acc);
  }

 private:
  static Vec low_nibble_mask() { return spread(0x000f000f); }

  // The dot products of both halves as a pair. Weights stay where they are in their bytes and the dot
  // products are shifted instead, two vectors for eight. What the shifts drop is 0, and 16 * 3 * 127 has room
  // in 16 bits.
  template <int kShift>
  STRATA_LANES_INLINE Vec dots(const ActivationUnit& x) const {
    const Vec mask = spread(0x03030303u << kShift);
    Vec dot0 = zero(), dot1 = zero();
    unrolled<4>([&](auto j) STRATA_LANES_LAMBDA {
      dot0 = add_dot4(dot0, and_(first.word[j], mask), x.q + 4 * j);
      dot1 = add_dot4(dot1, and_(last.word[j], mask), x.q + 16 + 4 * j);
    });
    return low_and_high(signed_shift<kShift>(dot0), shift32<kShift - 16>(dot1));
  }

  // s0 * dot0 + s1 * dot1, of dot products that are pairs of sums themselves: weights are 3 or 12 at most, so
  // that eight products have room in 16 bits.
  template <int k, int kByte>
  STRATA_LANES_INLINE Vec scaled_dots(Vec word, const ActivationUnit& x) {
    if constexpr (k % 4 == 2) {
      unrolled<4>([&](auto j) STRATA_LANES_LAMBDA {
        first.word[j] = shift16<4>(first.word[j]);
        last.word[j] = shift16<4>(last.word[j]);
      });
    }
    constexpr int kUp = 2 * (k % 2);  // where the weights lie in their bytes
    const Vec mask = spread(0x03030303u << kUp);
    const auto sums = [&](const Strip& strip, const auto* q) STRATA_LANES_LAMBDA {
      Vec sum = byte_products(and_(strip.word[0], mask), q);
      unrolled<3>([&](auto j) STRATA_LANES_LAMBDA {
        sum = plus16(sum, byte_products(and_(strip.word[j + 1], mask), q + 4 * (j + 1)));
      });
      return sum;
    };
    const Vec scale0 = and_(byte_pair<kByte, kByte>(word), low_nibble_mask());
    const Vec scale1 = and_(byte_pair<kByte + 1, kByte + 1>(word), low_nibble_mask());
    const Vec isum = plus32(multiply_add_pairs(sums(first, x.q), scale0),
                            multiply_add_pairs(sums(last, x.q + 16), scale1));
    return signed_shift<kUp>(isum);
  }
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
