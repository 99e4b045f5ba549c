#pragma once
// CUDA's names that headers of this folder need for their declarations. The memory planner (vram_plan.h)
// reads those headers, too, and is built where there is no toolkit: there the names stand for nothing.

#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#else
struct CUstream_st;
using cudaStream_t = CUstream_st*;
#define __host__
#define __device__
#endif
