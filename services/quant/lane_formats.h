#pragma once
// The list of the types that have products by lanes.

#ifdef STRATA_LANES_OF_16
#include "services/quant/code_books_avx512.h"
#else
#include "services/quant/code_books_avx2.h"
#endif

namespace strata::quant::STRATA_KERNEL_VARIANT {

template <class... Formats>
struct LaneFormatList {};
using LaneFormats =
    LaneFormatList<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ1_S, IQ1_M, IQ2_XXS,
                   IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, MXFP4, NVFP4>;

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
