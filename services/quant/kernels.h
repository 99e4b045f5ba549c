#pragma once
// The kernels behind quant.h. One source, compiled once per instruction set (kernel_products.cc,
// kernel_floats.cc with per-file flags); all variants compute the expressions of docs/numerics.md and so give
// the same bits. The table is chosen once, at run time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "services/quant/matrix.h"

namespace strata::quant {

// Tokens that one call of a kernel gets at most: lists of rows and sums live on the stack.
inline constexpr uint32_t kTokensPerCall = 64;

// y[token][row] = W[row] . x[token], rows row_begin..row_end-1; token i reads q8[i] or f32[i] and writes
// y[i][row].
struct ProductArgs {
  const std::byte* weights = nullptr;  // row 0
  std::size_t row_bytes = 0;
  uint32_t cols = 0;
  float scale = 1.0f;
  uint32_t row_begin = 0;
  uint32_t row_end = 0;
  uint32_t tokens = 0;                // up to kTokensPerCall
  uint64_t version = 0;               // Activations::version()
  const Q8Row* q8 = nullptr;          // (tokens), for product_q8
  const float* const* f32 = nullptr;  // (tokens), for product_f32
  float* const* y = nullptr;          // (tokens), each at row 0
  std::span<const std::byte> next;    // read after this product: to be fetched ahead; may be empty
};

// What a variant can do with one type of weights.
struct TypeKernels {
  void (*dequantize)(const std::byte* blocks, float* out, std::size_t count) = nullptr;
  void (*product_q8)(const ProductArgs&) = nullptr;   // nullptr for float types
  void (*product_f32)(const ProductArgs&) = nullptr;  // weights as float32
  bool supported() const { return dequantize != nullptr; }
};

inline constexpr uint32_t kTensorTypeIds = 64;
using TypeTable = std::array<TypeKernels, kTensorTypeIds>;  // by tensor type id

struct FloatKernels {
  float (*dot)(const float* a, const float* b, std::size_t count) = nullptr;
  float (*sum)(const float* x, std::size_t count) = nullptr;
  float (*sum_squares)(const float* x, std::size_t count) = nullptr;
  void (*quantize_q8)(const float* x, std::size_t count, int8_t* q, float* d, int32_t* sum) = nullptr;
  float (*exp)(float x) = nullptr;
  float (*sigmoid)(float x) = nullptr;
  float (*silu)(float x) = nullptr;
  float (*softplus)(float x) = nullptr;
  void (*silu_multiply)(const float* gate, const float* up, float* out, std::size_t count) = nullptr;
  void (*add_scaled)(float scale, const float* x, float* y,
                     std::size_t count) = nullptr;  // y = fma(scale, x, y)
};

struct Kernels {
  std::string_view name;  // "scalar", "avx2", "avx2_vnni", "avx512", "amx": the values of STRATA_CPU_KERNELS
  const TypeTable* types = nullptr;
  const FloatKernels* floats = nullptr;

  const TypeKernels& of(TensorType type) const {
    return (*types)[static_cast<uint32_t>(type) % kTensorTypeIds];
  }
};

// Those that this CPU can run, slowest first.
std::span<const Kernels> available_kernels();
// The fastest of them, or the one that STRATA_CPU_KERNELS names; chosen on first use. An unknown or
// impossible name is a CHECK: silently taking other kernels would hide what a test wanted to see.
const Kernels& kernels();

}  // namespace strata::quant
