#include "gateway/chat_template/string_literal.h"

#include <charconv>

#include "gateway/chat_template/error.h"
#include "services/tokenizer/utf8.h"

namespace strata::chat_template {
namespace {

// Characters behind a backslash that stand for one other.
constexpr std::string_view kLetters = "\\'\"abfnrtv";
constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";

bool is_octal(char c) { return c >= '0' && c <= '7'; }

void append_scalar(std::string& out, uint32_t value, uint32_t line) {
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
    raise_at(line, "U+{:04X} is no character", value);
  tokenizer::utf8_append(out, value);
}

}  // namespace

std::string decode_string_literal(std::string_view literal, uint32_t line) {
  std::string out;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out.push_back(literal[i]);
      continue;
    }
    const char escape = literal[++i];
    if (const std::size_t at = kLetters.find(escape); at != std::string_view::npos) {
      out.push_back(kMeanings[at]);
    } else if (escape == '\n') {
      // a line that goes on
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      const std::size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      const std::string_view hex = literal.substr(i + 1, digits);
      uint32_t value = 0;
      const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
      if (hex.size() != digits || read.ptr != hex.data() + digits)
        raise_at(line, "truncated \\{} escape in a string", escape);
      append_scalar(out, value, line);
      i += digits;
    } else if (is_octal(escape)) {
      uint32_t value = 0;
      std::size_t digits = 0;
      for (; digits < 3 && i + digits < literal.size() && is_octal(literal[i + digits]); ++digits) {
        value = 8 * value + static_cast<uint32_t>(literal[i + digits] - '0');
      }
      append_scalar(out, value, line);
      i += digits - 1;
    } else {
      out.push_back('\\');
      out.push_back(escape);
    }
  }
  return out;
}

}  // namespace strata::chat_template
