// How much working memory kernels need. Apart from the kernels, because the memory planner counts it where no
// CUDA is.
#include "gpu-worker/cuda/attention.h"
#include "gpu-worker/cuda/attention_scratch.h"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/products_f32_packed.h"
#include "gpu-worker/cuda/sampling_scratch.h"

namespace strata::gpu_worker::cuda {

uint64_t attention_scratch_floats(const AttentionShape& shape, uint32_t capacity) {
  const uint32_t attended = shape.attended_max(capacity);
  return uint64_t{shape.heads} * (score_stride(attended) + score_tiles_max(attended));
}

uint64_t sampling_scratch_bytes(uint32_t rows, uint32_t vocab) {
  return rows * sample_row_scratch_bytes(vocab);
}

uint64_t scratch_floats(uint32_t weight_rows, uint32_t cols, uint32_t rows) {
  if (rows < kManyRows) return 0;
  return (packed_tiles(weight_rows) + packed_tiles(rows)) * packed_tile_floats(cols) + kPartFloats;
}

}  // namespace strata::gpu_worker::cuda
