#pragma once
// What a model of random weights looks like: its sizes, and the type of each kind of matrix.

#include <array>
#include <cstdint>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/tensor_type.h"

namespace strata::synthetic {

using gguf::TensorType;

// The sizes of `qwen4exp`. The defaults are those of small models for tests: row lengths are multiples of
// 256, so that every type fits everywhere.
struct ModelShape {
  uint32_t layers = 2;
  uint32_t attention_interval = 2;  // every so many layers one with attention
  uint32_t hidden = 256;
  uint32_t streams = 2;
  uint32_t mixer_rank = 256;
  uint32_t vocabulary = 0;  // 0: what the tokenizer needs
  uint32_t context = 4096;
  uint32_t experts = 4;
  uint32_t experts_used = 2;
  uint32_t expert_width = 256;
  uint32_t shared_width = 256;
  // Attention
  uint32_t heads = 0;     // 0: as many as make the hidden size
  uint32_t kv_heads = 0;  // 0: half as many
  uint32_t head_dim = 64;
  uint32_t indexer_heads = 2;
  uint32_t indexer_dim = 64;
  uint32_t indexer_top_k = 64;  // tokens
  uint32_t block_tokens = 4;
  std::array<int32_t, 4> rope_sections = {6, 5, 5, 0};  // pairs; half of the rotated values
  float rope_base = 1e5f;
  // Delta-net
  uint32_t value_heads = 0;  // 0: as many as make the hidden size
  uint32_t key_heads = 0;    // 0: half as many
  uint32_t state_dim = 64;
  // n-gram embedding
  uint32_t ngram_size = 2;
  uint32_t ngram_heads = 1;   // per n-gram length
  uint32_t table_rows = 509;  // least rows per n-gram head: the sizes are the primes from there on

  uint32_t stream_dim() const { return streams * hidden; }
  uint32_t value_dim() const { return value_heads * state_dim; }
  uint32_t qkv_dim() const { return 2 * key_heads * state_dim + value_dim(); }
  uint32_t ngram_rows() const { return (ngram_size - 1) * ngram_heads; }  // per token
  bool has_attention(uint32_t layer) const { return (layer + 1) % attention_interval == 0; }
  // The second layer, as in the large models, unless that has attention.
  uint32_t ngram_layer() const { return layers > 1 && !has_attention(1) ? 1 : 0; }
};

// With the zeros filled in. kInvalidArgument: sizes that do not fit each other.
Result<ModelShape> completed(ModelShape shape);

// The types by role.
struct ModelTypes {
  TensorType dense = TensorType::kQ8_0;    // attention, delta-net, stream mixers, shared experts, n-gram
  TensorType gate_up = TensorType::kQ8_0;  // experts
  TensorType down = TensorType::kQ8_0;     // experts
  TensorType embedding = TensorType::kQ8_0;
  TensorType table = TensorType::kQ8_0;  // of the n-grams
  TensorType head = TensorType::kQ8_0;
  TensorType small = TensorType::kF32;  // routers, alpha, beta, inject: matrices of few rows
};

// Constants of the n-gram hashes, made as the large models' were.
struct NgramHashes {
  std::vector<uint64_t> multipliers, offsets, sizes;
  uint64_t table_rows = 0;  // with the padding at the end
};
NgramHashes ngram_hashes(const ModelShape& shape);

}  // namespace strata::synthetic
