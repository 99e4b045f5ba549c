#pragma once
// Activations as the products by lanes read them.

#include <cstdint>

#include "services/quant/variant.h"

namespace strata::quant::STRATA_KERNEL_VARIANT {

// One token's activations of a unit, as kernels read them: a cache line.
struct alignas(64) ActivationUnit {
  int8_t q[32];      // in the order of the format: dword j meets w[j]
  int32_t start[2];  // -kOffset * sum, where the dot products begin: of the halves, or of the unit and 0
  float sum[2];      // the sums: of the halves, or of the unit and 0
  union {
    int16_t minus[2][2];  // kMinus: -2 * the sums of both halves of what each dot product is of
    int16_t sums[2];      // else, where there are halves: their sums
  };
  float d;
};
static_assert(sizeof(ActivationUnit) == 64);

}  // namespace strata::quant::STRATA_KERNEL_VARIANT
