#include "services/gguf/finite_check.h"

#include <cstdint>
#include <cstring>

#include "services/gguf/printable.h"

namespace strata::gguf {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// An exponent of all ones is infinity or NaN.
bool finite16(uint16_t bits) { return (bits & 0x7C00) != 0x7C00; }
bool finite_bfloat(uint16_t bits) { return (bits & 0x7F80) != 0x7F80; }
bool finite32(uint32_t bits) { return (bits & 0x7F800000) != 0x7F800000; }
bool finite64(uint64_t bits) { return (bits & 0x7FF0000000000000) != 0x7FF0000000000000; }

// The scale of IQ1_M: the top nibbles of the last four u16, the lowest first.
bool finite_iq1_m(const std::byte* block) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 4; ++i)
    bits |= static_cast<uint32_t>(load<uint16_t>(block + 48 + 2 * i) >> 12) << (4 * i);
  return finite16(static_cast<uint16_t>(bits));
}

// Positions of one or two binary16 numbers in a block.
struct HalfFields {
  int scale = -1;
  int minimum = -1;
};

HalfFields half_fields(TensorType type) {
  using enum TensorType;
  switch (type) {
    case kF16:
    case kQ4_0:
    case kQ5_0:
    case kQ8_0:
    case kIQ1_S:
    case kIQ2_XXS:
    case kIQ2_XS:
    case kIQ2_S:
    case kIQ3_XXS:
    case kIQ3_S:
    case kIQ4_NL:
    case kIQ4_XS:
    case kQ1_0:
    case kQ2_0:
      return {0, -1};
    case kQ4_1:
    case kQ5_1:
    case kQ8_1:
    case kQ4_K:
    case kQ5_K:
      return {0, 2};
    case kQ2_K:
      return {80, 82};
    case kQ3_K:
      return {108, -1};
    case kQ6_K:
      return {208, -1};
    case kTQ1_0:
      return {52, -1};
    case kTQ2_0:
      return {64, -1};
    default:
      return {};
  }
}

template <class Finite>
Status check_blocks(const TensorInfo& tensor, const std::string& path, Finite finite) {
  const uint64_t block_bytes = tensor_type_info(tensor.type).block_bytes;
  for (uint64_t at = 0; at < tensor.bytes; at += block_bytes) {
    if (!finite(tensor.data.data() + at)) {
      return fail(Code::kDataLoss,
                  "{}: byte {}: tensor '{}': block {} of type {} is NaN or infinite, expected finite numbers",
                  path, tensor.file_offset + at, printable(tensor.name), at / block_bytes,
                  tensor_type_info(tensor.type).name);
    }
  }
  return {};
}

}  // namespace

Status check_finite(const TensorInfo& tensor, const std::string& path) {
  switch (tensor.type) {
    case TensorType::kF32:
    case TensorType::kQ8_K:
      return check_blocks(tensor, path,
                          [](const std::byte* block) { return finite32(load<uint32_t>(block)); });
    case TensorType::kF64:
      return check_blocks(tensor, path,
                          [](const std::byte* block) { return finite64(load<uint64_t>(block)); });
    case TensorType::kBF16:
      return check_blocks(tensor, path,
                          [](const std::byte* block) { return finite_bfloat(load<uint16_t>(block)); });
    case TensorType::kIQ1_M:
      return check_blocks(tensor, path, finite_iq1_m);
    case TensorType::kMXFP4:
      return check_blocks(tensor, path, [](const std::byte* block) { return block[0] != std::byte{255}; });
    default:
      break;
  }
  const HalfFields fields = half_fields(tensor.type);
  if (fields.scale < 0) return {};  // integers and NVFP4: every bit pattern is a number
  return check_blocks(tensor, path, [fields](const std::byte* block) {
    return finite16(load<uint16_t>(block + fields.scale)) &&
           (fields.minimum < 0 || finite16(load<uint16_t>(block + fields.minimum)));
  });
}

}  // namespace strata::gguf
