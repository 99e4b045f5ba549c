#pragma once
// The Gated DeltaNet layer between its projections, as model::DeltaNet does it (model-qwen4exp section 6), in
// the recurrent form: any cut of a sequence into windows gives the same bits. For numerics: fast the full
// chunks of prompts are computed in the chunked form, which agrees to about 1e-5 (docs/decisions/040).

#include "gpu-worker/cuda/cuda_words.h"
#include "gpu-worker/cuda/device_types.h"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/state_capture.h"

namespace strata::gpu_worker::cuda {

// Rows of a chunk of the chunked form. Chunks begin at multiples of it from the start of a sequence.
inline constexpr uint32_t kDeltaChunk = 64;
// Scratch of one chunk: for each value head U, W, P and two factors a row.
constexpr uint64_t delta_chunk_head_floats(uint32_t dim) {
  return uint64_t{kDeltaChunk} * (2 * dim + kDeltaChunk + 2);
}
constexpr uint64_t delta_chunk_floats(uint32_t value_heads, uint32_t dim) {
  return value_heads * delta_chunk_head_floats(dim);
}
// Whether the GPU in use can compute the chunked form for heads of `dim` values: it takes sm_80, heads of 32,
// 64 or 128 and, for 128, 157 KiB of shared memory a block.
bool can_chunk_delta_net(uint32_t dim);

struct DeltaNetArgs {
  WindowView window;
  uint32_t key_heads = 0, value_heads = 0;  // nk, nv
  uint32_t dim = 0;                         // s: of a head
  uint32_t taps = 0;                        // K1
  float eps = 0;
  // Weights, float32. channels = (2 nk + nv) s.
  const float* conv = nullptr;     // (channels, taps)
  const float* a = nullptr;        // (nv) ssm_a
  const float* dt_bias = nullptr;  // (nv)
  const float* norm = nullptr;     // (s) ssm_norm
  // Projections of the window.
  FloatRows qkv;    // (rows, channels)
  FloatRows gate;   // (rows, nv*s): z
  FloatRows alpha;  // (rows, nv)
  FloatRows beta;   // (rows, nv)
  // Results.
  float* heads = nullptr;  // out (rows, nv*s): what the output projection reads
  Q8Rows heads_q8 = {};    // out, the same in 8 bits; data == nullptr: not wanted
  // State of sequence i: S (nv, s, s), [head][key][value], at state + i * state_stride, and the convolution's
  // (taps - 1, channels), oldest first, at history + i * history_stride. Strides in floats.
  float* state = nullptr;
  uint64_t state_stride = 0;
  float* history = nullptr;
  uint64_t history_stride = 0;
  // Scratch. Long windows leave other numbers in alpha and beta.
  float* mixed = nullptr;        // (rows, channels), long windows only
  uint32_t* arrivals = nullptr;  // (segments, nk), zero before the first call; every call leaves zeros
  // The chunked form; without it everything is recurrent. Needs can_chunk_delta_net().
  float* log_decays = nullptr;  // (rows, nv)
  // Room for one chunk at least (delta_chunk_floats()); chunks go through in pieces that fit. May lie on qkv.
  FloatScratch chunk_scratch = {};
};

// One launch for short windows (decode), four for long ones; with the chunked form three and two for each
// piece of chunks more. Which launches there are depends on the window's counts only. Moves S of every
// sequence of the window twice (3.1 MB each way for the real shape) beside the rows. A window with captures
// counts as long; each takes two launches (with the chunked form all those of the recurrence) and two copies
// more. Within chunks it makes them begin anew, so where prompts are read in those captures lie at multiples.
void delta_net(const DeltaNetArgs& args, cudaStream_t stream, const LayerCaptures& captures = {});

}  // namespace strata::gpu_worker::cuda
