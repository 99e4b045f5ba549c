#pragma once
// The tensor types of GGUF files and their block sizes (gguf-format, "Tensor types").

#include <cstdint>
#include <string_view>

namespace strata::gguf {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
  kQ2_0 = 42,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;  // "Q4_K"
  uint32_t block_values;  // values of a row in one block
  uint32_t block_bytes;
};

// nullptr for ids that were removed or never defined.
const TensorTypeInfo* tensor_type_info(uint32_t id);
// For a type that a file has been accepted with. CHECKs that it is known.
const TensorTypeInfo& tensor_type_info(TensorType type);

}  // namespace strata::gguf
