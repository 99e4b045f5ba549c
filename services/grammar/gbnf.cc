#include "services/grammar/gbnf.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "services/grammar/hex.h"
#include "services/grammar/limits.h"
#include "services/tokenizer/utf8.h"

namespace strata::grammar {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Rules> parse() {
    if (text_.size() > kSourceBytesMax) {
      return fail(Code::kResourceExhausted, "grammar: {} bytes, at most {} are read", text_.size(),
                  kSourceBytesMax);
    }
    skip_space(true);
    while (!at_end()) {
      TRY_OK(read_rule());
      skip_space(true);
    }
    return finish();
  }

 private:
  bool at_end() const { return position_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  bool next_is(std::string_view what) const { return text_.substr(position_).starts_with(what); }

  Failure error_at(std::size_t position, std::string_view what, Code code = Code::kInvalidArgument) const {
    const std::string_view before = text_.substr(0, position);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return fail(code, "grammar, line {}, column {}: {}", line, position - line_begin + 1, what);
  }
  Failure error(std::string_view what) const { return error_at(position_, what); }

  // Space, tabs and comments; line ends too where the rule cannot end here.
  void skip_space(bool line_ends) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        position_ = std::min(text_.find('\n', position_), text_.size());
      } else if (c == ' ' || c == '\t' || (line_ends && (c == '\n' || c == '\r'))) {
        ++position_;
      } else {
        return;
      }
    }
  }

  std::string_view read_name() {
    const std::size_t begin = position_;
    while (!at_end() && is_name_char(peek())) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  Status read_rule() {
    const std::size_t begin = position_;
    const std::string_view name = read_name();
    if (name.empty()) return error("expected the name of a rule");
    skip_space(false);
    if (!next_is("::=")) return error(fmt::format("expected ::= after \"{}\"", name));
    position_ += 3;
    const RuleId rule = rule_named(name, begin);
    if (rules_.body(rule) != kNoNode)
      return error_at(begin, fmt::format("rule \"{}\" is defined twice", name));
    skip_space(true);
    TRY(const NodeId body, read_choice(0));
    rules_.define(rule, body);
    if (!at_end() && peek() != '\n' && peek() != '\r') {
      return error(fmt::format("unexpected {} in rule \"{}\"", shown(), name));
    }
    return {};
  }

  std::string shown() const {
    if (at_end()) return "end of the grammar";
    const tokenizer::Utf8Step step = tokenizer::utf8_step(text_.substr(position_));
    if (step.kind != tokenizer::Utf8Step::Kind::kCharacter) return "byte that is not UTF-8";
    if (peek() == '\n' || peek() == '\r') return "end of line";
    return fmt::format("'{}'", text_.substr(position_, step.bytes));
  }

  RuleId rule_named(std::string_view name, std::size_t position) {
    const RuleId rule = rules_.rule(name);
    if (rule == first_used_.size()) first_used_.push_back(position);
    return rule;
  }

  // nesting: of parentheses; 0 is the top of a rule, where a line end ends it.
  Result<NodeId> read_choice(uint32_t nesting) {
    std::vector<NodeId> alternatives;
    while (true) {
      TRY(const NodeId alternative, read_sequence(nesting));
      alternatives.push_back(alternative);
      if (!continues_with_bar(nesting)) return rules_.choice(std::move(alternatives));
      ++position_;
      skip_space(true);
    }
  }

  // The bar may stand at the beginning of the next line.
  bool continues_with_bar(uint32_t nesting) {
    const std::size_t here = position_;
    skip_space(true);
    if (peek() == '|') return true;
    if (nesting == 0) position_ = here;
    return false;
  }

  Result<NodeId> read_sequence(uint32_t nesting) {
    std::vector<NodeId> items;
    while (true) {
      skip_space(nesting > 0);
      const std::size_t begin = position_;
      TRY(const std::optional<NodeId> item, read_item(nesting));
      if (!item) break;
      if (rules_.node_count() > kNodesMax || rules_.rule_count() > kRulesMax) {
        return error_at(begin, fmt::format("more than {} expressions or {} rules", kNodesMax, kRulesMax),
                        Code::kResourceExhausted);
      }
      items.push_back(*item);
      TRY_OK(read_repetitions(nesting, items.back()));
    }
    return rules_.sequence(std::move(items));
  }

  // Nothing where the sequence ends.
  Result<std::optional<NodeId>> read_item(uint32_t nesting) {
    const char c = peek();
    if (c == '"') return wrap(read_literal());
    if (c == '[') return wrap(read_class());
    if (c == '<') return wrap(read_token());
    if (c == '!') return error("a token must not be negated here; use a character class");
    if (c == '.') {
      ++position_;
      return rules_.chars(CodePoints::all());
    }
    if (c == '(') return wrap(read_group(nesting));
    if (is_name_char(c)) {
      const std::size_t begin = position_;
      const std::string_view name = read_name();
      const std::size_t after = position_;
      skip_space(false);
      if (next_is("::="))
        return error_at(begin, fmt::format("rule \"{}\" must begin on a line of its own", name));
      position_ = after;
      return rules_.reference(rule_named(name, begin));
    }
    return std::nullopt;
  }

  static Result<std::optional<NodeId>> wrap(Result<NodeId> node) {
    if (!node) return forward_failure(std::move(node));
    return std::optional<NodeId>(*node);
  }

  Result<NodeId> read_group(uint32_t nesting) {
    const std::size_t begin = position_++;
    if (nesting == kNestingMax) {
      return error_at(begin, fmt::format("more than {} parentheses inside each other", kNestingMax),
                      Code::kResourceExhausted);
    }
    TRY(const NodeId inner, read_choice(nesting + 1));
    if (peek() != ')') {
      return at_end() ? error_at(begin, "this parenthesis is never closed")
                      : error(fmt::format("expected ) but found {}", shown()));
    }
    ++position_;
    return inner;
  }

  Status read_repetitions(uint32_t nesting, NodeId& item) {
    while (true) {
      // Behind an operator a line end may follow only inside parentheses, as everywhere.
      const std::size_t here = position_;
      skip_space(nesting > 0);
      switch (peek()) {
        case '*':
          ++position_;
          item = rules_.repeat(item, 0, kUnbounded);
          break;
        case '+':
          ++position_;
          item = rules_.repeat(item, 1, kUnbounded);
          break;
        case '?':
          ++position_;
          item = rules_.repeat(item, 0, 1);
          break;
        case '{': {
          TRY(item, read_bounds(item));
          break;
        }
        default:
          position_ = here;
          return {};
      }
      if (rules_.depth(item) > kExpressionDepthMax) {
        return error_at(here, "too many repetitions of a repetition", Code::kResourceExhausted);
      }
    }
  }

  Result<NodeId> read_bounds(NodeId item) {
    const std::size_t begin = position_++;
    TRY(const std::optional<uint32_t> min, read_number());
    std::optional<uint32_t> max = min;
    skip_space(false);
    if (peek() == ',') {
      ++position_;
      TRY(max, read_number());
      if (!min && !max) return error_at(begin, "{,} bounds nothing");
      if (!max) max = kUnbounded;
    } else if (!min) {
      return error_at(begin, "expected {m}, {m,} or {m,n}");
    }
    skip_space(false);
    if (peek() != '}') return error(fmt::format("expected }} but found {}", shown()));
    ++position_;
    if (min.value_or(0) > *max)
      return error_at(begin, fmt::format("{{{},{}}} has its bounds swapped", *min, *max));
    return rules_.repeat(item, min.value_or(0), *max);
  }

  Result<std::optional<uint32_t>> read_number() {
    skip_space(false);
    const std::size_t begin = position_;
    uint32_t value = 0;
    while (!at_end() && peek() >= '0' && peek() <= '9') {
      value = value * 10 + static_cast<uint32_t>(peek() - '0');
      ++position_;
      if (value > kRepeatMax) {
        return error_at(begin, fmt::format("more than {} repetitions", kRepeatMax), Code::kResourceExhausted);
      }
    }
    if (position_ == begin) return std::nullopt;
    return std::optional<uint32_t>(value);
  }

  Result<NodeId> read_literal() {
    const std::size_t begin = position_++;
    std::string text;
    while (peek() != '"') {
      if (at_end() || peek() == '\n') return error_at(begin, "this string is never closed");
      TRY(const char32_t value, read_character());
      tokenizer::utf8_append(text, value);
    }
    ++position_;
    return rules_.bytes(text);
  }

  Result<NodeId> read_class() {
    const std::size_t begin = position_++;
    const bool inverted = peek() == '^';
    if (inverted) ++position_;
    CodePoints set;
    while (peek() != ']') {
      if (at_end() || peek() == '\n') return error_at(begin, "this character class is never closed");
      const std::size_t range_begin = position_;
      TRY(const char32_t first, read_character());
      char32_t last = first;
      if (peek() == '-' && position_ + 1 < text_.size() && text_[position_ + 1] != ']') {
        ++position_;
        TRY(last, read_character());
      }
      if (last < first) return error_at(range_begin, "this range has its ends swapped");
      set.add(first, last);
    }
    ++position_;
    return rules_.chars(inverted ? set.complement() : std::move(set));
  }

  // <spelling> or <[id]>
  Result<NodeId> read_token() {
    const std::size_t begin = position_;
    const std::size_t end = text_.find_first_of(">\n", position_);
    if (end == std::string_view::npos || text_[end] == '\n')
      return error_at(begin, "this token is never closed");
    const std::string_view spelling = text_.substr(begin, end + 1 - begin);
    if (spelling.size() == 2) return error_at(begin, "<> names no token");
    position_ = end + 1;
    if (!spelling.starts_with("<[")) return rules_.token(spelling);
    position_ = begin + 2;
    TRY(const std::optional<uint32_t> id, read_number());
    if (!id || !next_is("]>")) return error_at(begin, "expected <[id]> with the number of a token");
    position_ += 2;
    return rules_.token_id(static_cast<int32_t>(*id));
  }

  Result<char32_t> read_character() {
    if (peek() == '\\') return read_escape();
    const tokenizer::Utf8Step step = tokenizer::utf8_step(text_.substr(position_));
    if (step.kind != tokenizer::Utf8Step::Kind::kCharacter) return error("this is not UTF-8");
    position_ += step.bytes;
    return step.value;
  }

  Result<char32_t> read_escape() {
    const std::size_t begin = position_++;
    const char c = peek();
    if (!at_end()) ++position_;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'x':
        return read_hex(begin, 2);
      case 'u':
        return read_hex(begin, 4);
      case 'U':
        return read_hex(begin, 8);
      case '"':
      case '\\':
      case '[':
      case ']':
      case '^':
      case '-':
        return static_cast<char32_t>(c);
      default:
        return error_at(
            begin,
            "unknown escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] \\^ \\- \\xHH \\uHHHH \\UHHHHHHHH");
    }
  }

  Result<char32_t> read_hex(std::size_t begin, uint32_t digits) {
    char32_t value = 0;
    for (uint32_t i = 0; i < digits; ++i, ++position_) {
      const int digit = hex_value(peek());
      if (digit < 0) return error_at(begin, fmt::format("this escape needs {} hexadecimal digits", digits));
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > kLastCodePoint || (value >= kSurrogatesFirst && value <= kSurrogatesLast)) {
      return error_at(begin, "this is not a Unicode character");
    }
    return value;
  }

  Result<Rules> finish() {
    if (rules_.rule_count() == 0) return error_at(0, "the grammar is empty");
    for (RuleId rule = 0; rule < rules_.rule_count(); ++rule) {
      if (rules_.body(rule) != kNoNode) continue;
      return error_at(first_used_[rule], fmt::format("rule \"{}\" is not defined", rules_.name(rule)));
    }
    const uint32_t count = rules_.rule_count();
    const RuleId root = rules_.rule("root");
    if (root == count) return error_at(0, "there is no rule called root");
    rules_.set_root(root);
    return std::move(rules_);
  }

  std::string_view text_;
  std::size_t position_ = 0;
  Rules rules_;
  std::vector<std::size_t> first_used_;  // of each rule, for messages
};

}  // namespace

Result<Rules> parse_gbnf(std::string_view text) { return Parser(text).parse(); }

}  // namespace strata::grammar
