#pragma once
// Formats whose product with one token takes fewer instructions than by way of units (product_lanes.h): with
// many tokens a unit is made once and used often, with one it is made, used and gone.

#include "services/quant/formats_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// What formats_lanes.h says of a Block, but that its units are multiplied at once: add<k>(acc, x) is
// add_unit() with unit k. A format without one goes by way of units.
template <class F>
struct OneTokenBlock;

// Weights stay where they are in their bytes and the dot products are shifted instead, two vectors for eight.
// Dot products, scales and minimums of both halves are pairs of 16-bit integers, so that one instruction
// multiplies and adds a pair; all of it is exact.
template <>
struct OneTokenBlock<Q2_K> {
  const Rows rows;
  const Strip scales;
  const Vec factors;
  const Floats factor, minimum_factor;
  Strip first, last;  // of the present 128 values

  explicit OneTokenBlock(const Rows& at)
      : rows(at),
        scales(load_strip(at, 0)),
        factors(load_word(at, 80)),
        factor(low_half(factors)),
        minimum_factor(negative(high_half(factors))) {}

  template <int k, class ActivationUnit>
  STRATA_LANES_INLINE Floats add(Floats acc, const ActivationUnit& x) {
    constexpr int kShift = 2 * (k % 4);
    if constexpr (k % 4 == 0) {
      first = load_strip(rows, 16 + 8 * k);
      last = load_strip(rows, 32 + 8 * k);
    }
    const Vec mask = spread(0x03030303u << kShift);
    Vec dot0 = zero(), dot1 = zero();
    for (int j = 0; j < 4; ++j) {
      dot0 = add_dot4(dot0, and_(first.word[j], mask), x.q + 4 * j);
      dot1 = add_dot4(dot1, and_(last.word[j], mask), x.q + 4 * (j + 4));
    }
    // What the shifts drop is 0, and 16 * 3 * 128 has room in 16 bits.
    const Vec dots =
        _mm512_mask_mov_epi16(_mm512_srai_epi32(dot0, kShift), 0xaaaaaaaau, shift32<kShift - 16>(dot1));
    const Vec both = two_bytes<2 * (k % 2)>(scales.word[k / 2]);
    const Floats isum = to_floats(_mm512_madd_epi16(dots, and_(both, spread(0x000f000f))));
    const Floats msum = to_floats(_mm512_madd_epi16(shift16<4>(both), spread_four(x.sums)));
    const Floats d = spread_lanes(x.d);
    acc = fma(mul(factor, d), isum, acc);
    return fma(mul(minimum_factor, d), msum, acc);
  }

 private:
  // Bytes kFirst and kFirst + 1 of each lane as 16-bit integers.
  template <int kFirst>
  STRATA_LANES_INLINE static Vec two_bytes(Vec word) {
    const auto pair = [](int lane) {
      const int at = 4 * lane + kFirst;
      return static_cast<int>(0x80008000u | static_cast<uint32_t>((at + 1) << 16 | at));
    };
    return _mm512_shuffle_epi8(word,
                               _mm512_broadcast_i32x4(_mm_setr_epi32(pair(0), pair(1), pair(2), pair(3))));
  }
};

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
