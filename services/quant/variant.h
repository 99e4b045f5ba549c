#pragma once
// The tables that each compiled variant defines. Files that are compiled several times put everything in
// strata::quant::STRATA_KERNEL_VARIANT, inline functions too: two variants of one inline function would be
// merged by the linker, and a CPU without AVX2 could be given the AVX2 one.

#include "services/quant/kernels.h"

namespace strata::quant {

// Products of quantized types by lanes of eight or sixteen rows (product_lanes.h). Sources of
// their own, so in namespaces of their own.
using ProductTable = std::array<void (*)(const ProductArgs&), kTensorTypeIds>;

namespace scalar {
extern const TypeTable kTypes;
extern const FloatKernels kFloats;
}  // namespace scalar

// Defined where the build is for x86-64: STRATA_KERNELS_X86.
namespace avx2 {
extern const TypeTable kTypes;
extern const FloatKernels kFloats;
}  // namespace avx2
namespace avx2_lanes {
extern const ProductTable kProducts;
}  // namespace avx2_lanes
namespace avx2_vnni {  // the same with dot products in one instruction, for CPUs without AVX-512
extern const ProductTable kProducts;
}  // namespace avx2_vnni
namespace avx512 {
extern const TypeTable kTypes;
extern const FloatKernels kFloats;
}  // namespace avx512
namespace avx512_lanes {
extern const ProductTable kProducts;
}  // namespace avx512_lanes
namespace amx {
extern const ProductTable kProducts;
}  // namespace amx
}  // namespace strata::quant
