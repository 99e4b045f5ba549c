#pragma once
// The tables that each compiled variant defines. Files that are compiled several times put everything in
// strata::quant::STRATA_KERNEL_VARIANT, inline functions too: two variants of one inline function would be
// merged by the linker, and a CPU without AVX2 could be given the AVX2 one.

#include "services/quant/kernels.h"

namespace strata::quant {
namespace scalar {
extern const TypeTable kTypes;
extern const FloatKernels kFloats;
}  // namespace scalar
namespace avx2 {  // defined where the build has it: STRATA_KERNELS_AVX2
extern const TypeTable kTypes;
extern const FloatKernels kFloats;
}  // namespace avx2
}  // namespace strata::quant
