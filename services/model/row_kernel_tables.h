#pragma once
// The tables that each compiled variant of row_kernels_variant.cc defines.

#include "services/model/row_kernels.h"

namespace strata::model {
namespace scalar {
extern const RowKernels kRowKernels;
}  // namespace scalar
#ifdef STRATA_ROW_KERNELS_AVX2
namespace avx2 {
extern const RowKernels kRowKernels;
}  // namespace avx2
#endif
}  // namespace strata::model
