#pragma once
// What host code and kernels of the `cuda` device hand each other. Plain structs, passed to kernels by value;
// pointers are device pointers unless a comment says otherwise. Arrays are row-major, shapes in parentheses.

#include <cstddef>
#include <cstdint>

#include "gpu-worker/cuda/cuda_words.h"
#include "services/gguf/tensor_type.h"

namespace strata::gpu_worker::cuda {

using gguf::TensorType;

// W (rows, cols) in blocks of `type` as in the model's file; the first byte of a matrix is aligned to 64 (to
// 16 within an expert record), rows follow each other without gaps.
struct DeviceMatrix {
  TensorType type = TensorType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  const std::byte* data = nullptr;
  uint64_t row_bytes = 0;
  float scale = 1.0f;  // multiplies the product
};

// Rows of 8-bit activations, each stored as q (cols bytes) | d (cols/32 float) | sum (cols/32 int32), as in
// services/quant/matrix.h and on the dispatch board. Row i begins at data + i * stride; data and stride are
// multiples of 16.
struct Q8Rows {
  std::byte* data = nullptr;
  uint64_t stride = 0;
  uint32_t cols = 0;
};
constexpr uint64_t q8_row_stride(uint32_t cols) { return (uint64_t{cols} + cols / 32 * 8 + 15) / 16 * 16; }

// Rows of floats, `stride` floats apart.
struct FloatRows {
  float* data = nullptr;
  uint64_t stride = 0;
};

// One row (token) of a window.
struct RowInfo {
  int32_t token = 0;
  uint32_t segment = 0;   // which SegmentInfo it belongs to
  uint32_t position = 0;  // from the start of its sequence
  uint32_t sequence = 0;  // index of the state that it reads and writes
};

// Consecutive rows of one sequence; position is that of the first. The first prompt_rows are of a prompt, the
// others were generated.
struct SegmentInfo {
  uint32_t sequence = 0;
  uint32_t row_begin = 0;
  uint32_t row_count = 0;
  uint32_t position = 0;
  uint32_t prompt_rows = 0;
};

// Rows [begin, end) of a window.
struct RowRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};
// Of a segment the rows within a range; a segment that has none there has none.
__host__ __device__ constexpr SegmentInfo part_within(SegmentInfo segment, RowRange rows) {
  const uint32_t end_of_all = segment.row_begin + segment.row_count;
  const uint32_t begin = rows.begin > segment.row_begin ? rows.begin : segment.row_begin;
  const uint32_t end = rows.end < end_of_all ? rows.end : end_of_all;
  const uint32_t count = begin < end ? end - begin : 0, before = begin - segment.row_begin;
  const uint32_t prompts = segment.prompt_rows > before ? segment.prompt_rows - before : 0;
  return {.sequence = segment.sequence,
          .row_begin = begin,
          .row_count = count,
          .position = segment.position + before,
          .prompt_rows = prompts < count ? prompts : count};
}

// The window: the counts are known to the host and shape the launches (a captured graph belongs to one pair
// of counts), everything else is read from device memory, which is filled before each window.
struct WindowView {
  uint32_t row_count = 0;
  uint32_t segment_count = 0;
  const RowInfo* rows = nullptr;          // (row_count)
  const SegmentInfo* segments = nullptr;  // (segment_count)
  const float* turns =
      nullptr;  // (row_count, 2, pairs): cos and sin of model::Rope::turn_at at each row's position
  const float* block_turns =
      nullptr;  // (row_count, 2, pairs): of the first position of the indexer block that ends with the row
};

}  // namespace strata::gpu_worker::cuda
