// Compiled once per set of vector instructions (services/quant/CMakeLists.txt), which says what tiles are
// made by.
#if defined(STRATA_TILES_AMX)
#include "services/quant/tiles_amx.h"
#elif defined(STRATA_LANES_OF_16)
#include "services/quant/tiles_avx512.h"
#else
#include "services/quant/tiles_avx2.h"
#endif
#include "services/quant/lane_formats.h"
#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {
namespace {

#ifdef STRATA_TILES_AMX
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
