#pragma once
// A weight matrix as it lies in the file, and the 8-bit form of the activations it meets.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/tensor_type.h"

namespace strata::quant {

using gguf::TensorType;

// How products are computed (design: numbers contract).
enum class Numerics : uint8_t {
  kReproducible,  // the default: quantized weights meet 8-bit activations, bit-identical everywhere
  kExact,         // dequantized weights, float32 activations: for judging against references, slow
};

// W (rows, cols) row-major in blocks of `type`; maps cols values to rows values. Points into the mapped file
// or the arena.
struct Matrix {
  TensorType type = TensorType::kF32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;
  float scale = 1.0f;  // of a `NAME.scale` tensor: multiplies the product

  const std::byte* row(uint32_t index) const { return data + std::size_t{index} * row_bytes; }
};

// One row of activations in 8-bit blocks of 32: value i is d[i/32] * q[i].
// d = absmax/127 in float32; q rounded to nearest even; sum[b] is the integer sum of block b's q (for types
// with a minimum).
struct Q8Row {
  const int8_t* q = nullptr;     // (cols)
  const float* d = nullptr;      // (cols / 32)
  const int32_t* sum = nullptr;  // (cols / 32)
};

inline constexpr uint32_t kActivationBlock = 32;

// Bytes of one Q8 row stored as q | d | sum, each part aligned to 4 bytes. cols is a multiple of 32.
constexpr std::size_t q8_row_bytes(uint32_t cols) {
  return std::size_t{cols} + 8 * (std::size_t{cols} / kActivationBlock);
}
// The view of a row stored that way.
Q8Row q8_row_view(const std::byte* stored, uint32_t cols);

// The one rule by which activations become 8-bit (docs/numerics.md). x.size() is a multiple of 32; `stored`
// has q8_row_bytes(x.size()) bytes, aligned to 4. Non-finite input gives a NaN scale in its block.
void quantize_q8(std::span<const float> x, std::byte* stored);

// n input rows of a product; owns the 8-bit form, made once and only when some weight needs it.
class Activations {
 public:
  // x (tokens, cols), rows `stride` floats apart; kept by reference.
  Activations(const float* x, uint32_t tokens, uint32_t cols, std::size_t stride);
  // Rows that arrive already quantized (from the dispatch board); stored rows `stride_bytes` apart.
  static Activations from_q8(const std::byte* stored, uint32_t tokens, uint32_t cols,
                             std::size_t stride_bytes);
  // The 8-bit form may lie in this object: it can be moved, not copied.
  Activations(Activations&&) = default;
  Activations& operator=(Activations&&) = default;

  // The same for other rows, keeping the memory of the 8-bit form, so that a loop that reuses one object
  // stops allocating.
  void rebind(const float* x, uint32_t tokens, uint32_t cols, std::size_t stride);

  // Says that the rows stay as they are until rebind(), so that threads may keep what their kernels make of
  // them: the rows of an expert are computed in many small products with one input.
  void freeze();
  uint64_t version() const { return version_; }  // 0: not frozen; else no others of the process have it

  uint32_t tokens() const { return tokens_; }
  uint32_t cols() const { return cols_; }
  bool has_f32() const { return x_ != nullptr; }
  bool has_q8() const { return q8_ != nullptr; }
  const float* f32(uint32_t token) const { return x_ + std::size_t{token} * stride_; }
  // Quantizes on first use. Not thread-safe: call ensure_q8() before handing the object to several threads.
  void ensure_q8();
  Q8Row q8(uint32_t token) const { return q8_row_view(q8_ + std::size_t{token} * q8_stride_, cols_); }

 private:
  Activations() = default;
  const float* x_ = nullptr;
  std::size_t stride_ = 0;
  uint32_t tokens_ = 0;
  uint32_t cols_ = 0;
  const std::byte* q8_ = nullptr;
  std::size_t q8_stride_ = 0;
  uint64_t version_ = 0;
  std::vector<std::byte> owned_;
};

}  // namespace strata::quant
