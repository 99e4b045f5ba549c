#include "services/gguf/tensor_type.h"

#include <algorithm>
#include <array>

#include "services/base/check.h"

namespace strata::gguf {
namespace {

using enum TensorType;

// Ascending ids, so that a lookup is a binary search; ids between them were removed from the format.
constexpr std::array kTypes = {
    TensorTypeInfo{kF32, "F32", 1, 4},
    TensorTypeInfo{kF16, "F16", 1, 2},
    TensorTypeInfo{kQ4_0, "Q4_0", 32, 18},
    TensorTypeInfo{kQ4_1, "Q4_1", 32, 20},
    TensorTypeInfo{kQ5_0, "Q5_0", 32, 22},
    TensorTypeInfo{kQ5_1, "Q5_1", 32, 24},
    TensorTypeInfo{kQ8_0, "Q8_0", 32, 34},
    TensorTypeInfo{kQ8_1, "Q8_1", 32, 36},
    TensorTypeInfo{kQ2_K, "Q2_K", 256, 84},
    TensorTypeInfo{kQ3_K, "Q3_K", 256, 110},
    TensorTypeInfo{kQ4_K, "Q4_K", 256, 144},
    TensorTypeInfo{kQ5_K, "Q5_K", 256, 176},
    TensorTypeInfo{kQ6_K, "Q6_K", 256, 210},
    TensorTypeInfo{kQ8_K, "Q8_K", 256, 292},
    TensorTypeInfo{kIQ2_XXS, "IQ2_XXS", 256, 66},
    TensorTypeInfo{kIQ2_XS, "IQ2_XS", 256, 74},
    TensorTypeInfo{kIQ3_XXS, "IQ3_XXS", 256, 98},
    TensorTypeInfo{kIQ1_S, "IQ1_S", 256, 50},
    TensorTypeInfo{kIQ4_NL, "IQ4_NL", 32, 18},
    TensorTypeInfo{kIQ3_S, "IQ3_S", 256, 110},
    TensorTypeInfo{kIQ2_S, "IQ2_S", 256, 82},
    TensorTypeInfo{kIQ4_XS, "IQ4_XS", 256, 136},
    TensorTypeInfo{kI8, "I8", 1, 1},
    TensorTypeInfo{kI16, "I16", 1, 2},
    TensorTypeInfo{kI32, "I32", 1, 4},
    TensorTypeInfo{kI64, "I64", 1, 8},
    TensorTypeInfo{kF64, "F64", 1, 8},
    TensorTypeInfo{kIQ1_M, "IQ1_M", 256, 56},
    TensorTypeInfo{kBF16, "BF16", 1, 2},
    TensorTypeInfo{kTQ1_0, "TQ1_0", 256, 54},
    TensorTypeInfo{kTQ2_0, "TQ2_0", 256, 66},
    TensorTypeInfo{kMXFP4, "MXFP4", 32, 17},
    TensorTypeInfo{kNVFP4, "NVFP4", 64, 36},
    TensorTypeInfo{kQ1_0, "Q1_0", 128, 18},
    TensorTypeInfo{kQ2_0, "Q2_0", 64, 18},
};
static_assert(std::ranges::is_sorted(kTypes, {}, &TensorTypeInfo::type));

}  // namespace

const TensorTypeInfo* tensor_type_info(uint32_t id) {
  const auto* found = std::ranges::lower_bound(
      kTypes, id, {}, [](const TensorTypeInfo& info) { return static_cast<uint32_t>(info.type); });
  return found != kTypes.end() && static_cast<uint32_t>(found->type) == id ? found : nullptr;
}

const TensorTypeInfo& tensor_type_info(TensorType type) {
  const TensorTypeInfo* info = tensor_type_info(static_cast<uint32_t>(type));
  CHECK(info != nullptr, "tensor type {}", static_cast<uint32_t>(type));
  return *info;
}

}  // namespace strata::gguf
