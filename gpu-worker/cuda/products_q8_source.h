#pragma once
// Which products a launch computes: an argument of the kernels of products_q8_window.cuh and
// products_q8_tile.cuh. Weights are matrices that all tokens meet (multiply_q8), or records of experts, each
// with the tokens of its group (compute_experts).

#include "gpu-worker/cuda/device_limits.h"
#include "gpu-worker/cuda/experts.h"
#include "gpu-worker/cuda/product_job.h"

namespace strata::gpu_worker::cuda {

// One matrix, or the same part of all records.
struct SourceMatrix {
  const std::byte* data = nullptr;  // nullptr: at `offset` in the record of the group
  uint64_t offset = 0;
  uint64_t row_bytes = 0;
  uint32_t rows = 0;
  float scale = 1.0f;
  const float* scales = nullptr;  // of each expert, if any
  float* out = nullptr;
  uint64_t out_stride = 0;
};

struct ProductSource {
  SourceMatrix matrices[kProductJobsMax];  // of one type, all with the same cols
  uint32_t matrix_count = 0;
  uint32_t cols = 0;
  Q8Rows x;
  uint32_t tokens = 0;  // without groups
  HitList hits = {};    // hits.counts == nullptr: no groups
  uint32_t top_k = 1;
  // Groups read row pair / top_k of x and write consecutive rows from group.first on (gate, up), or read
  // those and write row `pair` (down).
  bool to_pairs = false;
  // Of two matrices with as many rows, gate and up: only silu(gate) * up is written, where gate's output is.
  bool silu = false;
  bool x_floats = false;  // x is rows of floats, quantized where they are needed
  // (Both for ProductPath::kRows only.)
};

// One launch for one type. Without groups source.tokens count; with groups, there are at most groups_max of
// them, with at most tokens_max tokens each (about tokens_expected) and pairs_max together.
struct ProductLaunch {
  ProductSource source;
  TensorType type = TensorType::kF32;
  uint32_t groups_max = 1;
  uint32_t tokens_max = 0;
  uint32_t tokens_expected = 0;
  uint32_t pairs_max = 0;
  uint32_t* tile_ends = nullptr;  // working memory (groups_max), with groups only
};
void launch_products_q8(const ProductLaunch& launch, cudaStream_t stream);
// Whether that takes ProductPath::kRows.
bool computes_rows(const ProductLaunch& launch);
// The same for groups with weights of a float type and rows of floats in the place of source.x.
void launch_products_float(const ProductLaunch& launch, cudaStream_t stream);

// How the products of a launch are computed; launch_products_q8() above chooses. Without tensor cores only
// below sm_80 (and in the emulation).
enum class ProductPath : uint8_t {
  kRows,        // products_q8_rows.cuh
  kWindow,      // products_q8_window.cuh
  kSmallTiles,  // products_q8_tile.cuh
  kLargeTiles,
};
void launch_products_q8(const ProductLaunch& launch, ProductPath path, bool tensor_cores,
                        cudaStream_t stream);
// The part of it that is compiled for each format.
template <class F>
void launch_format(const ProductLaunch& launch, ProductPath path, bool tensor_cores, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
