// Compiled for AVX2, and again with AVX-VNNI (services/quant/CMakeLists.txt).
#include "services/quant/product_avx2.h"
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {
namespace {

template <class... F>
constexpr ProductTable make_table(LaneFormatList<F...>) {
  ProductTable table{};
  ((table[static_cast<uint32_t>(F::kType)] = product_lanes<F>), ...);
  return table;
}

}  // namespace

constinit const ProductTable kProducts = make_table(LaneFormats{});

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
