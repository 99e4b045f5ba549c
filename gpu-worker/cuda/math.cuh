#pragma once
// The functions of docs/numerics.md for kernels: the same source as on the host, so the same bits (the build
// turns contraction, flushing of subnormals and approximate division off).

#define STRATA_KERNEL_VARIANT cuda_device
#include "services/quant/math_f32.h"
#undef STRATA_KERNEL_VARIANT

namespace strata::gpu_worker::cuda {

using namespace strata::quant::cuda_device;  // exp_value, sigmoid_value, silu_value, softplus_value,
                                             // half_to_float, ...

}  // namespace strata::gpu_worker::cuda
