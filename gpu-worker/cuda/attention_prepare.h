#pragma once
// Everything between an attention layer's projections and its block choice, in one launch (and one and a copy
// more for each capture, if there is an indexer): norms and
// rotations of query, key and indexer heads, the window's keys and values into the cache, the keys of
// finished blocks, the raw keys of the unfinished tail.

#include <cuda_runtime.h>

#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/kv_cache.h"
#include "gpu-worker/cuda/state_capture.h"

namespace strata::gpu_worker::cuda {

// Reference: SparseAttention::prepare_rows and finish_blocks; same bits (kF32). A warp takes one head of one
// row. Moves rows * (2*nq*d + 2*nkv*d + 2*ni*di + di) floats, and the cache's bytes of the rows.
struct AttentionPrepareArgs {
  AttentionShape shape;
  AttentionCache cache;
  WindowView window;
  FloatRows q;  // (rows, nq, 2, d): query, then gate; queries are normed and rotated in place, gates stay
  FloatRows k;  // (rows, nkv, d)
  FloatRows v;  // (rows, nkv, d)
  FloatRows indexer_q;            // (rows, ni, di) in place; the indexer's fields only with block_tokens > 0
  FloatRows indexer_k;            // (rows, di)
  const float* q_norm = nullptr;  // (d)
  const float* k_norm = nullptr;  // (d)
  const float* indexer_q_norm = nullptr;  // (di)
  const float* indexer_k_norm = nullptr;  // (di)
};
void attention_prepare(const AttentionPrepareArgs& args, cudaStream_t stream,
                       const LayerCaptures& captures = {});

}  // namespace strata::gpu_worker::cuda
