#pragma once
// Simple encoders of every tensor type that weights can have. They make valid, reasonably exact blocks, not
// the best ones: what they are for is small models for tests. What a block means says the decoder
// (services/quant); encoder_test.cc holds the two together.

#include <span>
#include <string>

#include "services/gguf/tensor_type.h"

namespace strata::synthetic {

// Encodes one block; `block` is zeroed.
using EncodeBlock = void (*)(const float* values, std::byte* block);

struct Encoder {
  gguf::TensorType type;
  EncodeBlock encode;
};

std::span<const Encoder> encoders();
// nullptr where there is none, e.g. for the activation formats.
const Encoder* find_encoder(gguf::TensorType type);
// The bytes of whole blocks; values.size() is a multiple of the type's block.
std::string encode_values(const Encoder& encoder, std::span<const float> values);

// The blocks, by family.
void encode_f32(const float* x, std::byte* block);
void encode_f16(const float* x, std::byte* block);
void encode_bf16(const float* x, std::byte* block);
void encode_q4_0(const float* x, std::byte* block);
void encode_q4_1(const float* x, std::byte* block);
void encode_q5_0(const float* x, std::byte* block);
void encode_q5_1(const float* x, std::byte* block);
void encode_q8_0(const float* x, std::byte* block);
void encode_q2_0(const float* x, std::byte* block);
void encode_iq4_nl(const float* x, std::byte* block);
void encode_mxfp4(const float* x, std::byte* block);
void encode_nvfp4(const float* x, std::byte* block);
// Blocks of 256 with a small integer scale per group (encode_k.cc)
void encode_q2_k(const float* x, std::byte* block);
void encode_q3_k(const float* x, std::byte* block);
void encode_q4_k(const float* x, std::byte* block);
void encode_q5_k(const float* x, std::byte* block);
void encode_q6_k(const float* x, std::byte* block);
void encode_iq4_xs(const float* x, std::byte* block);
// Code books (encode_codes.cc)
void encode_iq1_s(const float* x, std::byte* block);
void encode_iq1_m(const float* x, std::byte* block);
void encode_iq2_xxs(const float* x, std::byte* block);
void encode_iq2_xs(const float* x, std::byte* block);
void encode_iq2_s(const float* x, std::byte* block);
void encode_iq3_xxs(const float* x, std::byte* block);
void encode_iq3_s(const float* x, std::byte* block);

}  // namespace strata::synthetic
