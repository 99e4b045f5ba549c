#pragma once
// Loops that leave nothing of themselves: units of weights are only fast in registers, and only what is
// inlined and unrolled is there. In the variant's own namespace, see variant.h.

#include <type_traits>
#include <utility>

#define STRATA_LANES_INLINE [[gnu::always_inline]] inline
#define STRATA_LANES_LAMBDA __attribute__((always_inline))

namespace strata::quant::STRATA_KERNEL_VARIANT {

// body(0), ..., body(kCount - 1), each with its number as a constant.
template <int kCount, class Body>
STRATA_LANES_INLINE void unrolled(Body body) {
  const auto all = [&]<int... i>(std::integer_sequence<int, i...>)
                       STRATA_LANES_LAMBDA { (body(std::integral_constant<int, i>{}), ...); };
  all(std::make_integer_sequence<int, kCount>{});
}

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
