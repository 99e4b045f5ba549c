#pragma once
// Where an attention layer keeps what it has seen, on the device. Plain structs, passed to kernels by value.
// With kF32 everything is what model::SparseAttention computes, bit for bit. The other formats round each
// stored key (after norm and rotation) and value once; sums, softmax and block choice keep their order and
// their float32.

#include <cstddef>
#include <cstdint>

#include "gpu-worker/cuda/cuda_words.h"

namespace strata::gpu_worker::cuda {

enum class KvFormat : uint8_t {
  kF32,
  kF16,  // binary16, nearest even; beyond its range: infinity
  kQ8,  // signed bytes and one float32 scale per (token, head), by the rule of docs/numerics.md "Activations"
        // with the head as the block: scale = absmax / 127, q = nearest_even(x * (127 / absmax)), value =
        // float(q) * scale. A head that is not finite: NaN.
};
__host__ __device__ constexpr uint32_t kv_value_bytes(KvFormat format) {
  return format == KvFormat::kF32 ? 4 : format == KvFormat::kF16 ? 2 : 1;
}

// The shape of one attention layer; symbols of the specification in parentheses.
struct AttentionShape {
  uint32_t heads = 0;          // nq
  uint32_t kv_heads = 0;       // nkv, divides heads
  uint32_t head_dim = 0;       // d
  uint32_t rope_pairs = 0;     // rot / 2
  uint32_t block_tokens = 0;   // r; 0: dense attention, no indexer
  uint32_t indexer_heads = 0;  // ni
  uint32_t indexer_dim = 0;    // di
  uint32_t top_k_tokens = 0;   // B
  float eps = 0;

  __host__ __device__ constexpr uint32_t blocks_chosen() const {
    return block_tokens == 0 ? 0 : top_k_tokens / block_tokens;
  }
  // The most tokens that one row attends to in a sequence of `capacity` tokens.
  __host__ __device__ constexpr uint32_t attended_max(uint32_t capacity) const {
    if (block_tokens == 0) return capacity;
    const uint32_t sparse = blocks_chosen() * block_tokens + block_tokens - 1;
    return sparse < capacity ? sparse : capacity;
  }
};

// The cache of one layer for all sequences: sequence i begins i strides behind the base pointers. All
// pointers and strides in bytes are multiples of 16.
struct AttentionCache {
  KvFormat format = KvFormat::kF32;
  uint32_t capacity = 0;       // tokens of a sequence
  std::byte* k = nullptr;      // (sequences, capacity, kv_heads, head_dim) of the format
  std::byte* v = nullptr;      // the same
  float* k_scales = nullptr;   // kQ8: (sequences, capacity, kv_heads)
  float* v_scales = nullptr;   // the same
  float* pooled = nullptr;     // (sequences, capacity / block_tokens, indexer_dim): finished block keys
  float* raw = nullptr;        // (sequences, block_tokens - 1, indexer_dim): raw keys of the unfinished tail
  uint64_t kv_stride = 0;      // bytes, of k and v
  uint64_t scales_stride = 0;  // floats, of k_scales and v_scales
  uint64_t pooled_stride = 0;  // floats
  uint64_t raw_stride = 0;     // floats
};

// Values (k or v alone) and scales of one sequence.
constexpr uint64_t kv_bytes(KvFormat format, const AttentionShape& shape, uint32_t capacity) {
  return uint64_t{capacity} * shape.kv_heads * shape.head_dim * kv_value_bytes(format);
}
constexpr uint64_t kv_scale_floats(KvFormat format, const AttentionShape& shape, uint32_t capacity) {
  return format == KvFormat::kQ8 ? uint64_t{capacity} * shape.kv_heads : 0;
}

}  // namespace strata::gpu_worker::cuda
