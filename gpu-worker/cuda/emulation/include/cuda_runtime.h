#pragma once
// Found instead of the toolkit's header where STRATA_CUDA_EMULATION is defined (../README.md): the part of
// CUDA that this project's kernels and their callers use, on the CPU. What is missing here is missing on
// purpose: it does not compile.

#ifndef STRATA_CUDA_EMULATION
#error "gpu-worker/cuda/emulation/include is only for targets of the emulation"
#endif

#include "gpu-worker/cuda/emulation/host_api.h"
#include "gpu-worker/cuda/emulation/intrinsics.h"
#include "gpu-worker/cuda/emulation/kernel_words.h"
#include "gpu-worker/cuda/emulation/launch.h"
#include "gpu-worker/cuda/emulation/vector_types.h"
