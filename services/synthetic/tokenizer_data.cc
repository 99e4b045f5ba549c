#include "services/synthetic/tokenizer_data.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "services/tokenizer/tokenizer.h"
#include "services/tokenizer/utf8.h"

namespace strata::synthetic {
namespace {

using gguf::FileBuilder;
using gguf::ValueType;
using tokenizer::TokenType;

struct Token {
  std::string spelling;
  TokenType type;
};

constexpr std::string_view kChatTemplate =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

// Bytes as byte-level BPE spells them: what prints stands for itself, the others from U+0100 on.
std::vector<Token> byte_tokens() {
  std::vector<Token> tokens;
  for (uint32_t byte = 0, shifted = 0x100; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    std::string spelling;
    tokenizer::utf8_append(spelling, prints ? byte : shifted++);
    tokens.push_back({spelling, TokenType::kNormal});
  }
  return tokens;
}

}  // namespace

void add_tokenizer(gguf::FileBuilder& file, uint32_t vocabulary) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kMerges = {
      {{"Ġ", "t"}, {"h", "e"}, {"i", "n"}, {"Ġt", "he"}}};
  std::vector<Token> tokens = byte_tokens();
  std::string merges;
  for (const auto& [left, right] : kMerges) {
    merges += FileBuilder::text(fmt::format("{} {}", left, right));
    tokens.push_back({fmt::format("{}{}", left, right), TokenType::kNormal});
  }
  for (const char* mark : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    tokens.push_back({mark, TokenType::kControl});
  for (const char* mark : {"<think>", "</think>"}) tokens.push_back({mark, TokenType::kUserDefined});
  while (tokens.size() < vocabulary)
    tokens.push_back({fmt::format("Ġt{}", tokens.size()), TokenType::kNormal});

  std::string spellings, types;
  for (const Token& token : tokens) {
    spellings += FileBuilder::text(token.spelling);
    types += FileBuilder::number(static_cast<int32_t>(token.type));
  }
  file.key("tokenizer.ggml.model", ValueType::kString, FileBuilder::text("gpt2"))
      .key("tokenizer.ggml.pre", ValueType::kString, FileBuilder::text("qwen35"))
      .array("tokenizer.ggml.tokens", ValueType::kString, tokens.size(), spellings)
      .array("tokenizer.ggml.token_type", ValueType::kI32, tokens.size(), types)
      .array("tokenizer.ggml.merges", ValueType::kString, kMerges.size(), merges)
      .key("tokenizer.ggml.eos_token_id", ValueType::kU32, FileBuilder::number(kEndOfText + 2))
      .key("tokenizer.ggml.padding_token_id", ValueType::kU32, FileBuilder::number(kEndOfText))
      .key("tokenizer.ggml.add_bos_token", ValueType::kBool, FileBuilder::number(uint8_t{0}))
      .key("tokenizer.chat_template", ValueType::kString, FileBuilder::text(kChatTemplate));
}

}  // namespace strata::synthetic
