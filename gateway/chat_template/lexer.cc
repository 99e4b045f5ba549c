#include "gateway/chat_template/lexer.h"

#include <algorithm>
#include <optional>

#include "gateway/chat_template/error.h"
#include "gateway/chat_template/string_literal.h"
#include "gateway/chat_template/text.h"
#include "services/tokenizer/utf8.h"

namespace strata::chat_template {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_begin(c) || is_digit(c); }

// CR LF and CR become LF; one newline at the end goes.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) lex_outside();
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void advance(std::size_t bytes) {
    line_ += static_cast<uint32_t>(
        std::count(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes), '\n'));
    rest_.remove_prefix(bytes);
  }

  // Bytes of white space at a position.
  std::size_t space_at(std::size_t at) const {
    std::size_t end = at;
    while (end < rest_.size()) {
      const auto step = tokenizer::utf8_step(rest_.substr(end));
      if (!is_space(step.value)) break;
      end += step.bytes;
    }
    return end - at;
  }

  bool at(std::string_view text, std::size_t position = 0) const {
    return rest_.substr(std::min(position, rest_.size())).starts_with(text);
  }

  // Text up to the next tag, and the tag's beginning.
  void lex_outside() {
    std::size_t open = 0;
    while (open + 1 < rest_.size() &&
           !(rest_[open] == '{' && std::string_view("{%#").find(rest_[open + 1]) != std::string_view::npos)) {
      ++open;
    }
    if (open + 1 >= rest_.size()) {
      add_data(rest_.size(), '\0', /*variable=*/true);
      advance(rest_.size());
      return;
    }
    const char type = rest_[open + 1];
    const char sign = open + 2 < rest_.size() && (rest_[open + 2] == '-' || rest_[open + 2] == '+')
                          ? rest_[open + 2]
                          : '\0';
    add_data(open, sign, type == '{');
    advance(open);
    if (type == '%') {
      if (const std::size_t bytes = raw_begin(); bytes > 0) return lex_raw(bytes);
    }
    if (type == '{') add(Kind::kVariableBegin, "{{");
    if (type == '%') add(Kind::kBlockBegin, "{%");
    advance(sign == '\0' ? 2 : 3);
    if (type == '#') return lex_comment();
    lex_inside(type == '{');
  }

  void add_data(std::size_t bytes, char sign, bool variable) {
    std::string_view data = rest_.substr(0, bytes);
    if (sign == '-') {
      data = without_space_at_end(data);
    } else if (sign != '+' && !variable) {
      // lstrip_blocks: a tag that stands first on its line takes the indentation with it.
      const std::size_t newline = data.rfind('\n');
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || at_line_begin_) && without_space_at_end(data.substr(line_begin)).empty()) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) add(Kind::kData, std::string(data));
  }

  static std::string_view without_space_at_end(std::string_view data) {
    while (!data.empty()) {
      std::size_t begin = data.size() - 1;
      while (begin > 0 && (static_cast<unsigned char>(data[begin]) & 0xC0) == 0x80) --begin;
      if (!is_space(tokenizer::utf8_step(data.substr(begin)).value)) break;
      data = data.substr(0, begin);
    }
    return data;
  }

  // The end of a tag at a position: "%}" with its signs, and the white space that goes with it. 0: none
  // there.
  std::size_t tag_end(std::string_view mark, std::size_t position, bool trims_newline) const {
    if (at("-", position) && at(mark, position + 1)) return 3 + space_at(position + 3);
    if (trims_newline && at("+", position) && at(mark, position + 1)) return 3;
    if (!at(mark, position)) return 0;
    return trims_newline && at("\n", position + 2) ? 3 : 2;
  }

  void end_tag(std::size_t bytes) {
    at_line_begin_ = rest_[bytes - 1] == '\n';
    advance(bytes);
  }

  void lex_comment() {
    const uint32_t begin_line = line_;
    for (std::size_t position = 0; position < rest_.size(); ++position) {
      if (const std::size_t bytes = tag_end("#}", position, /*trims_newline=*/true); bytes > 0) {
        advance(position);
        return end_tag(bytes);
      }
    }
    raise_at(begin_line, "a comment is not closed");
  }

  // Bytes of a "{% raw %}" tag here, or 0.
  std::size_t raw_begin() const {
    std::size_t position = 2;
    if (at("-", position) || at("+", position)) ++position;
    position += space_at(position);
    if (!at("raw", position)) return 0;
    position += 3;
    position += space_at(position);
    if (at("-%}", position)) return position + 3 + space_at(position + 3);
    return at("%}", position) ? position + 2 : 0;
  }

  struct RawEnd {
    std::size_t bytes;
    char sign;
  };
  std::optional<RawEnd> raw_end(std::size_t position) const {
    if (!at("{%", position)) return std::nullopt;
    std::size_t end = position + 2;
    const char sign = at("-", end) ? '-' : at("+", end) ? '+' : '\0';
    if (sign != '\0') ++end;
    end += space_at(end);
    if (!at("endraw", end)) return std::nullopt;
    end += 6;
    end += space_at(end);
    const std::size_t mark = tag_end("%}", end, /*trims_newline=*/true);
    if (mark == 0) return std::nullopt;
    return RawEnd{end + mark - position, sign};
  }

  void lex_raw(std::size_t begin_bytes) {
    const uint32_t begin_line = line_;
    end_tag(begin_bytes);
    for (std::size_t position = 0; position < rest_.size(); ++position) {
      if (const auto end = raw_end(position)) {
        add_data(position, end->sign, /*variable=*/false);
        advance(position);
        return end_tag(end->bytes);
      }
    }
    raise_at(begin_line, "a raw block is not closed");
  }

  void lex_inside(bool variable) {
    const uint32_t begin_line = line_;
    std::string open;  // the brackets that wait to be closed
    while (!rest_.empty()) {
      if (open.empty()) {
        const std::size_t bytes = tag_end(variable ? "}}" : "%}", 0, /*trims_newline=*/!variable);
        if (bytes > 0) {
          add(variable ? Kind::kVariableEnd : Kind::kBlockEnd, variable ? "}}" : "%}");
          return end_tag(bytes);
        }
      }
      if (const std::size_t space = space_at(0); space > 0) {
        advance(space);
      } else {
        lex_token(open);
      }
    }
    raise_at(begin_line, "a tag is not closed");
  }

  void lex_token(std::string& open) {
    const char first = rest_[0];
    if (is_digit(first)) return lex_number();
    if (is_name_begin(first)) {
      std::size_t bytes = 1;
      while (bytes < rest_.size() && is_name_part(rest_[bytes])) ++bytes;
      return take(Kind::kName, bytes);
    }
    if (first == '\'' || first == '"') return lex_string(first);
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (at(two)) return take(Kind::kOperator, 2);
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(first) == std::string_view::npos) {
      raise_at(line_, "unexpected character '{}'", rest_.substr(0, tokenizer::utf8_step(rest_).bytes));
    }
    if (first == '(' || first == '[' || first == '{') {
      open.push_back(first == '(' ? ')' : first == '[' ? ']' : '}');
    } else if (first == ')' || first == ']' || first == '}') {
      if (open.empty()) raise_at(line_, "unexpected '{}'", first);
      if (open.back() != first) raise_at(line_, "unexpected '{}', expected '{}'", first, open.back());
      open.pop_back();
    }
    take(Kind::kOperator, 1);
  }

  void take(Kind kind, std::size_t bytes) {
    add(kind, std::string(rest_.substr(0, bytes)));
    advance(bytes);
  }

  // Digits, with single underscores between them, from a position on.
  std::size_t digits_at(std::size_t position) const {
    std::size_t end = position;
    while (end < rest_.size() &&
           (is_digit(rest_[end]) ||
            (rest_[end] == '_' && end > position && end + 1 < rest_.size() && is_digit(rest_[end + 1])))) {
      ++end;
    }
    return end - position;
  }

  void lex_number() {
    const bool after_dot =
        !tokens_.empty() && tokens_.back().kind == Kind::kOperator && tokens_.back().text == ".";
    std::size_t bytes = digits_at(0);
    if (bytes == 1 && rest_[0] == '0' && rest_.size() > 2 &&
        std::string_view("xXoObB").find(rest_[1]) != std::string_view::npos) {
      bytes = 2;
      while (bytes < rest_.size() && is_name_part(rest_[bytes])) ++bytes;
      return take(Kind::kInteger, bytes);
    }
    bool is_float = false;
    if (!after_dot) {  // a.0.1 are two positions
      if (at(".", bytes) && digits_at(bytes + 1) > 0) {
        bytes += 1 + digits_at(bytes + 1);
        is_float = true;
      }
      if (at("e", bytes) || at("E", bytes)) {
        const std::size_t sign = at("+", bytes + 1) || at("-", bytes + 1) ? 1 : 0;
        if (const std::size_t exponent = digits_at(bytes + 1 + sign); exponent > 0) {
          bytes += 1 + sign + exponent;
          is_float = true;
        }
      }
    }
    take(is_float ? Kind::kFloat : Kind::kInteger, bytes);
  }

  void lex_string(char quote) {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) raise_at(line_, "a string is not closed");
    add(Kind::kString, decode_string_literal(rest_.substr(1, end - 1), line_));
    advance(end + 1);
  }

  std::string source_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  uint32_t line_ = 1;
  bool at_line_begin_ = true;  // the last tag took a newline with it, or there was none yet
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::size_t valid = tokenizer::utf8_valid_prefix(source);
  if (valid < source.size()) {
    const auto line =
        1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(valid), '\n');
    raise_at(static_cast<uint32_t>(line), "the source is not UTF-8");
  }
  return Lexer(with_plain_newlines(source)).run();
}

}  // namespace strata::chat_template
