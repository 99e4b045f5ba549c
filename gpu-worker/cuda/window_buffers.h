#pragma once
// Device memory of one pass: what travels from layer to layer, and what one block of a layer needs at a time.
// The blocks come one after the other, so their buffers lie on top of each other.

#include "gpu-worker/cuda/dispatch.h"
#include "gpu-worker/cuda/experts.h"
#include "gpu-worker/cuda/placer.h"
#include "gpu-worker/cuda/products_f32.h"
#include "gpu-worker/cuda/stream_mixer.h"
#include "services/model/model_weights.h"

namespace strata::gpu_worker::cuda {

// How large windows can be.
struct WindowLimits {
  uint32_t rows = 0;
  uint32_t segments = 0;
  uint32_t logit_rows = 0;
  uint32_t context_tokens = 0;
  uint32_t batches = 0;        // of copied experts, per layer
  bool chunked_delta = false;  // prompts' delta-nets in the chunked form
};

struct NgramBuffers {
  Q8Rows embedded_q8;           // (rows, H)
  float* keys = nullptr;        // (rows, C, H)
  float* values = nullptr;      // (rows, H)
  float* gated = nullptr;       // (rows, C, H)
  float* conv_input = nullptr;  // (rows, C, H)
};

struct DeltaBuffers {
  float* qkv = nullptr;  // (rows, channels), mixed likewise
  float* mixed = nullptr;
  float* gate = nullptr;   // (rows, nv*s)
  float* alpha = nullptr;  // (rows, nv), beta likewise
  float* beta = nullptr;
  float* heads = nullptr;  // (rows, nv*s)
  Q8Rows heads_q8;
  // With chunked_delta.
  float* log_decays = nullptr;      // (rows, nv)
  FloatScratch chunk_scratch = {};  // on qkv, which nobody reads any more by then
};

struct AttentionBuffers {
  float* q = nullptr;  // (rows, nq, 2, d)
  float* k = nullptr;  // (rows, nkv, d), v likewise
  float* v = nullptr;
  float* indexer_q = nullptr;     // (rows, ni, di)
  float* indexer_k = nullptr;     // (rows, di)
  uint32_t* chosen = nullptr;     // (rows, B / r)
  float* block_scores = nullptr;  // (score_rows, blocks of a full context)
  float* scores = nullptr;        // (score_rows, attention_scratch_floats)
  uint32_t score_rows = 0;
  float* heads = nullptr;  // (rows, nq*d)
  Q8Rows heads_q8;
};

struct MoeBuffers {
  float* logits = nullptr;         // (rows, E)
  float* shared_router = nullptr;  // (rows)
  float* weights = nullptr;        // (rows, k)
  HitLists lists;
  DispatchScratch scratch;
  uint32_t* board_pairs = nullptr;
  uint64_t* remote = nullptr;  // (rows, k)
  float* parts = nullptr;      // (rows, k, H)
  std::byte* workspace = nullptr;
  float* shared_gate = nullptr;  // (rows, Fs), shared_up likewise
  float* shared_up = nullptr;
  Q8Rows shared_q8;
  float* shared = nullptr;  // (rows, H)
};

struct WindowBuffers {
  float* streams = nullptr;      // (rows, C, H)
  float* block_input = nullptr;  // (rows, H)
  Q8Rows block_input_q8;
  float* block_output = nullptr;          // (rows, H)
  float* inject[2] = {nullptr, nullptr};  // (rows, C): of the attn and of the ffn read
  uint16_t* ids = nullptr;                // (layers, rows, k)
  uint32_t* arrivals = nullptr;           // of delta_net(): (segments, nk), zero between calls
  float* gathered = nullptr;              // (logit_rows, C, H)
  float* logits = nullptr;                // (logit_rows, V)
  std::byte* sampling = nullptr;
  FloatScratch products;  // of the window's stream; the stream beside it has its own
  FloatScratch side_products;
  StreamScratch mixer;  // these and the following lie on top of each other
  NgramBuffers ngram;
  DeltaBuffers delta;
  AttentionBuffers attention;
  MoeBuffers moe;
};

WindowBuffers place_buffers(const model::ModelWeights& weights, const WindowLimits& limits, Placer& placer);

}  // namespace strata::gpu_worker::cuda
