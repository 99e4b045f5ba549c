#include "services/model/row_kernels.h"

#include <cmath>

#include "services/model/row_kernel_tables.h"
#include "services/quant/kernels.h"
#include "services/quant/quant.h"

namespace strata::model {

const RowKernels& row_kernels() {
#ifdef STRATA_ROW_KERNELS_AVX2
  static const RowKernels& chosen =
      quant::kernels().name == "scalar" ? scalar::kRowKernels : avx2::kRowKernels;
#else
  static const RowKernels& chosen = scalar::kRowKernels;
#endif
  return chosen;
}

void rms_norm(const float* x, const float* g, float eps, uint32_t count, float* y) {
  const float mean = quant::sum_squares_f32(x, count) / static_cast<float>(count);
  row_kernels().scale_by(x, 1.0f / std::sqrt(mean + eps), g, count, y);
}

void rms_norm_groups(const float* x, const float* g, float eps, uint32_t groups, uint32_t count, float* y) {
  for (uint32_t c = 0; c < groups; ++c) {
    const std::size_t at = std::size_t{c} * count;
    rms_norm(x + at, g + at, eps, count, y + at);
  }
}

}  // namespace strata::model
