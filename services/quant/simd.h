#pragma once
// The few vector operations that the kernels are written in, once with plain loops and once with AVX2
// (float_vec.h has a wider one). Every operation is exact or rounds once per lane, so both give the same
// bits.
//
//   Bytes32   32 bytes, one unit of weights or activations
//   Ints8     8 int32, one per weight row of a group
//   Floats8   8 float32, one per weight row of a group

#ifdef __AVX2__
#include "services/quant/simd_avx2.h"
#else
#include "services/quant/simd_scalar.h"
#endif
