#pragma once
// Which blocks each row attends to: scores of all complete blocks, then the B / r largest, equal ones by
// lower number.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/kv_cache.h"

namespace strata::gpu_worker::cuda {

// Reference: SparseAttention::choose and choose_blocks; same blocks. After attention_prepare. Not for dense
// layers. Two launches per tile of score_rows rows; one where capacity holds no more blocks than are chosen.
// Reads di floats per complete block and row (rows of one tile share them through the cache), writes and
// reads a score of it.
struct AttentionBlocksArgs {
  AttentionShape shape;
  AttentionCache cache;
  WindowView window;
  FloatRows indexer_q;  // (rows, ni, di) after attention_prepare
  float* scores =
      nullptr;  // (score_rows, capacity / block_tokens) scratch; null where there is nothing to choose
  uint32_t score_rows = 0;  // rows that fit the scratch, at least 1
  uint32_t* chosen =
      nullptr;  // out (rows, B / r): the first min(complete blocks, B / r) of a row are set, ascending
};
void attention_blocks(const AttentionBlocksArgs& args, cudaStream_t stream);

}  // namespace strata::gpu_worker::cuda
