#pragma once
// The vector operations that lane kernels share (formats_lanes.h), with AVX-512 or AVX2.

#ifdef STRATA_LANES_OF_16
#include "services/quant/simd_avx512.h"
#else
#include "services/quant/simd_lanes_avx2.h"
#endif
