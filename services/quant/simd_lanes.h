#pragma once
// The vector operations that lane kernels share (formats_lanes.h), with AVX-512 or AVX2.

#if defined(__AVX512F__) || defined(SIMDE_ENABLE_NATIVE_ALIASES)
#include "services/quant/simd_avx512.h"
#else
#include "services/quant/simd_lanes_avx2.h"
#endif
