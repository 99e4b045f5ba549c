#pragma once
// Working memory of sample(): what the chunks of a row say of themselves.

#include "gpu-worker/cuda/sampling.h"

namespace strata::gpu_worker::cuda {

inline constexpr uint32_t kSampleChunk = 2048;  // tokens of one block: 122 blocks a row with 248320 tokens
static_assert(kSampleChunk >= kSampleTopKMax);

struct ChunkSummary {
  uint64_t best = 0;  // largest best_key() of the changed logits of allowed tokens; 0: none is allowed
  double sum = 0;     // of exp(logit - largest), unmodified logits
  float largest = 0;  // of the unmodified logits
  uint32_t all_finite = 0;
  uint32_t differ = 0;  // from the row's first logit
};

// The scratch of a row: summaries (chunks), candidates of the draw (chunks, kSampleTopKMax), of the
// log-probabilities (chunks, kTopLogprobsMax).
__host__ __device__ constexpr uint32_t sample_chunks(uint32_t vocab) {
  return (vocab + kSampleChunk - 1) / kSampleChunk;
}
__host__ __device__ constexpr uint32_t sample_mask_words(uint32_t vocab) { return (vocab + 31) / 32; }
static_assert(sample_mask_words(33) == model::mask_words(33) && kSampleChunk % 32 == 0);
__host__ __device__ constexpr uint64_t sample_row_scratch_bytes(uint32_t vocab) {
  return uint64_t{sample_chunks(vocab)} *
         (sizeof(ChunkSummary) + (kSampleTopKMax + kTopLogprobsMax) * sizeof(uint64_t));
}

}  // namespace strata::gpu_worker::cuda
