// Compiled once per kernel variant (services/quant/CMakeLists.txt).
#include "services/quant/product_f32.h"
#ifndef __AVX512F__
#include "services/quant/product_q8.h"
#endif
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {
namespace {

template <class F>
constexpr void enter_quantized(TypeTable& table) {
#ifdef __AVX512F__
  constexpr auto kProduct = nullptr;  // kernel_lanes.cc has all of them
#else
  constexpr auto kProduct = product_q8<F>;
#endif
  table[static_cast<uint32_t>(F::kType)] = {dequantize_quantized<F>, kProduct, product_dequantized<F>};
}
template <class F>
constexpr void enter_float(TypeTable& table) {
  table[static_cast<uint32_t>(F::kType)] = {dequantize_float<F>, nullptr, product_float<F>};
}

template <class... Q, class... F>
constexpr TypeTable make_table(FormatList<Q...>, FormatList<F...>) {
  TypeTable table{};
  (enter_quantized<Q>(table), ...);
  (enter_float<F>(table), ...);
  return table;
}

}  // namespace

constinit const TypeTable kTypes = make_table(QuantizedFormats{}, FloatFormats{});

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
