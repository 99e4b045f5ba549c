#pragma once
// Source -> tokens, with the white space rules that Hugging Face renders with: trim_blocks, lstrip_blocks,
// one newline at the end of the source dropped.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::chat_template {

struct Token {
  enum class Kind : unsigned char {
    kData,           // text outside of tags
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kInteger,
    kFloat,
    kString,  // decoded
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  uint32_t line = 1;
};

// Raises TemplateError with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace strata::chat_template
