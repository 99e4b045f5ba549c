#pragma once
// The shape of a model, read from GGUF metadata and checked against itself (spec: gguf-qwen4exp section 1,
// model-qwen4exp section 1; the comments give the symbols used there).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/gguf_file.h"

namespace strata::model {

// Bounds of what the passes keep on the stack.
inline constexpr uint32_t kConvTapsMax = 32;
inline constexpr uint32_t kNgramSizeMax = 16;

enum class LayerKind : uint8_t { kRecurrent, kAttention };

struct RopeConfig {
  uint32_t dims = 0;          // rot: rotated values of a head
  float base = 0;             // theta
  uint32_t sections[3] = {};  // pairs per position kind: time, height, width
  float factor = 1.0f;        // YaRN; 1: none
  uint32_t original_context = 0;
  float beta_fast = 32, beta_slow = 1;
};

struct ModelConfig {
  std::string name;
  uint32_t layers = 0;        // L: trunk layers only
  uint32_t draft_layers = 0;  // blocks behind the trunk; not used yet, reported
  uint32_t context_length = 0;
  uint32_t hidden = 0;      // H
  uint32_t streams = 0;     // C
  uint32_t mixer_rank = 0;  // R
  uint32_t vocab = 0;       // V
  float eps = 0;
  std::vector<LayerKind> layer_kinds;  // (layers)

  // Sparse attention
  uint32_t heads = 0;     // nq
  uint32_t kv_heads = 0;  // nkv
  uint32_t head_dim = 0;  // d
  RopeConfig rope;
  uint32_t indexer_heads = 0;          // ni
  uint32_t indexer_dim = 0;            // di
  uint32_t indexer_top_k = 0;          // B, in tokens
  std::vector<uint32_t> block_tokens;  // (layers) r on attention layers; 0 there means dense attention

  // Gated DeltaNet
  uint32_t key_heads = 0;    // nk
  uint32_t value_heads = 0;  // nv
  uint32_t state_dim = 0;    // s
  uint32_t conv_taps = 0;    // K1

  // Experts. Width and types can differ per layer (rule G14): see ModelWeights.
  uint32_t experts = 0;       // E
  uint32_t experts_used = 0;  // k
  uint32_t expert_width = 0;  // F
  uint32_t shared_width = 0;  // Fs

  // n-gram embedding; layer -1: the model has none
  int32_t ngram_layer = -1;
  uint32_t ngram_size = 0;   // N
  uint32_t ngram_heads = 0;  // hp, per n-gram length
  uint32_t ngram_taps = 0;   // K2
  uint32_t ngram_row = 0;    // dp
  int32_t ngram_cut_token = -1;
  std::vector<uint64_t> ngram_multipliers, ngram_offsets, ngram_sizes;

  uint32_t qkv_dim() const { return 2 * key_heads * state_dim + value_heads * state_dim; }
  uint32_t value_dim() const { return value_heads * state_dim; }
  uint32_t stream_dim() const { return streams * hidden; }
  uint32_t ngram_rows() const { return (ngram_size - 1) * ngram_heads; }
  uint32_t ngram_history() const { return ngram_size * (ngram_taps - 1); }  // convolution inputs kept
};

// Do the values fit each other? kInvalidArgument names the key; `where` (the file) begins the message. Values
// are above zero.
Status check_model_config(const ModelConfig& config, std::string_view where);

// Errors name the key and say what was expected. Other architectures: kUnimplemented.
Result<ModelConfig> read_model_config(const gguf::GgufFile& file);

// Recommended sampling of the file (general.sampling.*); a field that the file leaves out is not set.
struct SamplingDefaults {
  float temperature = 1.0f, top_p = 0.95f, min_p = 0.0f;
  uint32_t top_k = 20;
  bool has_temperature = false, has_top_p = false, has_min_p = false, has_top_k = false;
};
Result<SamplingDefaults> read_sampling_defaults(const gguf::GgufFile& file);

}  // namespace strata::model
