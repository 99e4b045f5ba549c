#pragma once
// The state of all sequences on the device (model-qwen4exp section 10): what grows with the tokens (keys,
// values, block keys) and what has one size (delta-net states, convolution inputs). The n-gram context, two
// token ids, is the host's.

#include <vector>

#include "gpu-worker/cuda/kv_cache.h"
#include "gpu-worker/cuda/placer.h"
#include "gpu-worker/state_layout.h"
#include "services/model/model_config.h"

namespace strata::gpu_worker::cuda {

AttentionShape attention_shape(const model::ModelConfig& config, uint32_t layer);

// Bytes that must be zero when a sequence begins: sequence i's at base + i * bytes.
struct ClearedState {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

struct DeviceState {
  KvFormat kv_format = KvFormat::kF32;
  std::vector<AttentionCache> attention;  // (layers), empty entries for recurrent layers
  std::vector<float*> delta;              // (layers): S of sequence 0, null for attention layers
  std::vector<float*> delta_history;      // (layers): convolution inputs of sequence 0
  uint64_t delta_stride = 0;              // floats between sequences
  uint64_t delta_history_stride = 0;
  float* ngram_history = nullptr;
  uint64_t ngram_history_stride = 0;
  std::vector<ClearedState> cleared;
};

DeviceState place_state(const model::ModelConfig& config, uint32_t sequences, uint32_t capacity_tokens,
                        KvFormat format, Placer& placer);

// The arrays of one sequence as they are kept outside (gpu-worker/state_layout.h), and where they are, in the
// same order. The n-gram context is in host memory.
std::vector<StateArray> state_arrays(const model::ModelConfig& config, uint32_t capacity_tokens,
                                     KvFormat format);
std::vector<std::byte*> state_pointers(const model::ModelConfig& config, const DeviceState& state,
                                       uint32_t sequence, int32_t* ngram_context);

}  // namespace strata::gpu_worker::cuda
