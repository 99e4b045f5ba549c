#pragma once
// What the code book types have with AVX-512 only (code_books_avx512.h): offsets that differ between groups
// of 8 values.

#include "services/quant/formats_lanes.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

using ScalePer32Minus = UnitShape<32, MinimumKind::kNone, false, true>;
using ScalePer16Minus = UnitShape<16, MinimumKind::kNone, false, true>;

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
