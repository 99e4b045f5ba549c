#include "services/synthetic/encoder.h"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include "services/base/check.h"

namespace strata::synthetic {
namespace {

using enum gguf::TensorType;

constexpr std::array kEncoders = {
    Encoder{kF32, encode_f32},       Encoder{kF16, encode_f16},         Encoder{kBF16, encode_bf16},
    Encoder{kQ4_0, encode_q4_0},     Encoder{kQ4_1, encode_q4_1},       Encoder{kQ5_0, encode_q5_0},
    Encoder{kQ5_1, encode_q5_1},     Encoder{kQ8_0, encode_q8_0},       Encoder{kQ2_0, encode_q2_0},
    Encoder{kQ2_K, encode_q2_k},     Encoder{kQ3_K, encode_q3_k},       Encoder{kQ4_K, encode_q4_k},
    Encoder{kQ5_K, encode_q5_k},     Encoder{kQ6_K, encode_q6_k},       Encoder{kIQ1_S, encode_iq1_s},
    Encoder{kIQ1_M, encode_iq1_m},   Encoder{kIQ2_XXS, encode_iq2_xxs}, Encoder{kIQ2_XS, encode_iq2_xs},
    Encoder{kIQ2_S, encode_iq2_s},   Encoder{kIQ3_XXS, encode_iq3_xxs}, Encoder{kIQ3_S, encode_iq3_s},
    Encoder{kIQ4_NL, encode_iq4_nl}, Encoder{kIQ4_XS, encode_iq4_xs},   Encoder{kMXFP4, encode_mxfp4},
    Encoder{kNVFP4, encode_nvfp4},
};

}  // namespace

std::span<const Encoder> encoders() { return kEncoders; }

const Encoder* find_encoder(gguf::TensorType type) {
  const auto* found = std::ranges::find(kEncoders, type, &Encoder::type);
  return found == kEncoders.end() ? nullptr : found;
}

std::string encode_values(const Encoder& encoder, std::span<const float> values) {
  const auto& info = gguf::tensor_type_info(encoder.type);
  CHECK(values.size() % info.block_values == 0, "{} values of type {}", values.size(), info.name);
  const std::size_t blocks = values.size() / info.block_values;
  std::string bytes(blocks * info.block_bytes, '\0');
  auto* out = reinterpret_cast<std::byte*>(bytes.data());
  const auto encode = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      encoder.encode(values.data() + i * info.block_values, out + i * info.block_bytes);
  };
  // Searching code books is slow: all cores help where it is worth a thread.
  constexpr std::size_t kValuesPerThread = 16384;
  const std::size_t threads = std::clamp<std::size_t>(values.size() / kValuesPerThread, 1,
                                                      std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> helpers;
  for (std::size_t t = 1; t < threads; ++t)
    helpers.emplace_back(encode, blocks * t / threads, blocks * (t + 1) / threads);
  encode(0, blocks / threads);
  helpers.clear();
  return bytes;
}

}  // namespace strata::synthetic
