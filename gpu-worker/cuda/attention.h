#pragma once
// Attention of every row to its chosen blocks and the unfinished tail (dense layers: to everything), and the
// heads' gates.

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/kv_cache.h"

namespace strata::gpu_worker::cuda {

// Reference: SparseAttention::attend_head; same bits (kF32). After attention_prepare and attention_blocks.
// Two launches per tile of score_rows rows: scores, then softmax, values, gate and 8-bit rows. With n tokens
// attended, a row costs 2*nq*d*n fma.
struct AttentionArgs {
  AttentionShape shape;
  AttentionCache cache;
  WindowView window;
  FloatRows q;                       // (rows, nq, 2, d) after attention_prepare
  const uint32_t* chosen = nullptr;  // (rows, B / r) of attention_blocks; null: every row attends to
                                     // everything, on dense layers and wherever no row has more than B / r
                                     // complete blocks (attention_blocks need not run then)
  float* scratch = nullptr;          // (score_rows, attention_scratch_floats())
  uint32_t score_rows = 0;           // rows that fit the scratch, at least 1; 512 fill an H200
  FloatRows out;                     // (rows, nq * d); data may be null if out_q8 is given
  Q8Rows out_q8;  // the same as quantize_q8 gives it; data may be null. Needs d to be a multiple of 32
};
void attention(const AttentionArgs& args, cudaStream_t stream);

// Floats of scratch that one row needs.
uint64_t attention_scratch_floats(const AttentionShape& shape, uint32_t capacity);

}  // namespace strata::gpu_worker::cuda
