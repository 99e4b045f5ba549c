#pragma once
// A `qwen4exp` model with random weights: every layer kind, experts, the n-gram embedding, a tokenizer.

#include <cstdint>
#include <string>

#include "services/base/status.h"
#include "services/gguf/tensor_type.h"

namespace strata::make_model {

using gguf::TensorType;

// Row lengths are multiples of 256 by default, so that every type fits everywhere.
struct ModelShape {
  uint32_t layers = 2;
  uint32_t attention_interval = 2;  // every so many layers one with attention
  uint32_t hidden = 256;            // a multiple of 128
  uint32_t experts = 4;
  uint32_t experts_used = 2;
  uint32_t expert_width = 256;
  uint32_t shared_width = 256;
  uint32_t mixer_rank = 256;
  uint32_t ngram_size = 2;
  uint32_t ngram_heads = 1;   // per n-gram length
  uint32_t table_rows = 509;  // per n-gram head
  uint32_t vocabulary = 0;    // 0: what the tokenizer needs
  uint32_t context = 4096;
};

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

// The bytes of the file. A tensor's values depend on the seed, its name and its shape, not on any type.
Result<std::string> make_model(const ModelShape& shape, const ModelTypes& types, uint64_t seed);

}  // namespace strata::make_model
