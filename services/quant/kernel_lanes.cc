// Compiled for AVX-512, and again for AVX-512 with AMX (services/quant/CMakeLists.txt).
#ifdef STRATA_KERNEL_TILES_AMX
#include "services/quant/product_amx.h"
#else
#include "services/quant/product_lanes.h"
#endif
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {
namespace {

#ifdef STRATA_KERNEL_TILES_AMX
using Tiles = AmxTiles;
#else
using Tiles = VectorTiles;
#endif

template <class... F>
constexpr ProductTable make_table(LaneFormatList<F...>) {
  ProductTable table{};
  ((table[static_cast<uint32_t>(F::kType)] = product_lanes<F, Tiles>), ...);
  return table;
}

}  // namespace

constinit const ProductTable kProducts = make_table(LaneFormats{});

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
