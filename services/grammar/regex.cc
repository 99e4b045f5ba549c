#include "services/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "services/grammar/hex.h"
#include "services/grammar/limits.h"
#include "services/tokenizer/utf8.h"

namespace strata::grammar {
namespace {

const CodePoints& digits() {
  static const CodePoints kSet({{'0', '9'}});
  return kSet;
}
const CodePoints& word_characters() {
  static const CodePoints kSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return kSet;
}
const CodePoints& white_space() {
  static const CodePoints kSet({{'\t', '\r'},
                                {' ', ' '},
                                {0xA0, 0xA0},
                                {0x1680, 0x1680},
                                {0x2000, 0x200A},
                                {0x2028, 0x2029},
                                {0x202F, 0x202F},
                                {0x205F, 0x205F},
                                {0x3000, 0x3000},
                                {0xFEFF, 0xFEFF}});
  return kSet;
}
const CodePoints& any_but_line_ends() {
  static const CodePoints kSet = CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
  return kSet;
}

Regex one_of(CodePoints set) { return {.kind = Regex::Kind::kSet, .set = std::move(set)}; }
Regex any_text() {
  return {.kind = Regex::Kind::kRepeat, .parts = {one_of(CodePoints::all())}, .min = 0, .max = kUnbounded};
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Regex> parse() {
    TRY(Regex regex, choice(0));
    if (!at_end()) return error("this ) closes nothing");
    return regex;
  }

 private:
  bool at_end() const { return position_ == text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
  }
  Failure error(std::string_view what, Code code = Code::kInvalidArgument) const {
    return fail(code, "at {}: {}", position_ + 1, what);
  }

  Result<Regex> choice(uint32_t nesting) {
    if (nesting > kNestingMax) return error("nested too deeply", Code::kResourceExhausted);
    Regex result{.kind = Regex::Kind::kChoice};
    while (true) {
      TRY(Regex alternative, sequence(nesting));
      result.parts.push_back(std::move(alternative));
      if (peek() != '|' || at_end()) break;
      ++position_;
    }
    return result.parts.size() == 1 ? std::move(result.parts[0]) : std::move(result);
  }

  Result<Regex> sequence(uint32_t nesting) {
    Regex result;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (++items_ > kNodesMax) return error("too long", Code::kResourceExhausted);
      TRY(Regex item, atom(nesting));
      TRY_OK(quantifiers(item));
      result.parts.push_back(std::move(item));
    }
    return result;
  }

  Result<Regex> atom(uint32_t nesting) {
    switch (peek()) {
      case '^':
        ++position_;
        return Regex{.kind = Regex::Kind::kBegin};
      case '$':
        ++position_;
        return Regex{.kind = Regex::Kind::kEnd};
      case '.':
        ++position_;
        return one_of(any_but_line_ends());
      case '(':
        return group(nesting);
      case '[':
        return char_class();
      case '*':
      case '+':
      case '?':
      case '{':
        return error(fmt::format("nothing to repeat before {}", peek()));
      case '\\': {
        TRY(CodePoints set, escape(false));
        return one_of(std::move(set));
      }
      default: {
        TRY(const char32_t value, character());
        return one_of(CodePoints({{value, value}}));
      }
    }
  }

  Result<Regex> group(uint32_t nesting) {
    ++position_;
    if (peek() == '?') {
      if (peek(1) == ':') {
        position_ += 2;
      } else if (peek(1) == '<' && peek(2) != '=' && peek(2) != '!') {
        position_ = std::min(text_.find('>', position_), text_.size() - 1) + 1;
      } else {
        return error("look-around and flags are not supported");
      }
    }
    TRY(Regex inner, choice(nesting + 1));
    if (peek() != ')' || at_end()) return error("this group is never closed");
    ++position_;
    return inner;
  }

  Status quantifiers(Regex& item) {
    uint32_t min = 0, max = kUnbounded;
    switch (peek()) {
      case '*':
        ++position_;
        break;
      case '+':
        ++position_;
        min = 1;
        break;
      case '?':
        ++position_;
        max = 1;
        break;
      case '{': {
        ++position_;
        TRY(const std::optional<uint32_t> low, number());
        if (!low) return error("expected {m}, {m,} or {m,n}");
        min = max = *low;
        if (peek() == ',') {
          ++position_;
          TRY(const std::optional<uint32_t> high, number());
          max = high.value_or(kUnbounded);
        }
        if (peek() != '}') return error("expected {m}, {m,} or {m,n}");
        ++position_;
        if (max < min) return error("bounds are swapped");
        break;
      }
      default:
        return {};
    }
    if (item.kind == Regex::Kind::kBegin || item.kind == Regex::Kind::kEnd)
      return error("an anchor cannot be repeated");
    if (peek() == '?') ++position_;  // lazy: the same texts
    if (peek() == '+' || peek() == '*' || peek() == '?' || (peek() == '{' && !at_end())) {
      return error("nothing to repeat");
    }
    item = Regex{.kind = Regex::Kind::kRepeat, .parts = {std::move(item)}, .min = min, .max = max};
    return {};
  }

  Result<std::optional<uint32_t>> number() {
    const std::size_t begin = position_;
    uint32_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++position_) {
      value = value * 10 + static_cast<uint32_t>(peek() - '0');
      if (value > kRepeatMax) return error("too many repetitions", Code::kResourceExhausted);
    }
    return position_ == begin ? std::nullopt : std::optional(value);
  }

  Result<char32_t> character() {
    const tokenizer::Utf8Step step = tokenizer::utf8_step(text_.substr(position_));
    if (step.kind != tokenizer::Utf8Step::Kind::kCharacter) return error("not UTF-8");
    position_ += step.bytes;
    return step.value;
  }

  // A backslash and what belongs to it, as the set of characters that it stands for.
  Result<CodePoints> escape(bool in_class) {
    ++position_;
    if (at_end()) return error("the pattern ends in a backslash");
    const char c = peek();
    const auto single = [](char32_t value) { return CodePoints({{value, value}}); };
    if (c >= '1' && c <= '9') return error("back-references are not supported");
    if (c != '\0' &&
        std::string_view("^$\\.*+?()[]{}|/-\"'#&,:;<=>@`~!% _").find(c) != std::string_view::npos) {
      ++position_;
      return single(static_cast<char32_t>(c));
    }
    ++position_;
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return white_space();
      case 'S':
        return white_space().complement();
      case 't':
        return single('\t');
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case '0':
        return single(0);
      case 'b':
        if (in_class) return single('\b');
        break;
      case 'x':
        return hex_digits(2);
      case 'u':
        return hex_digits(4);
      default:
        break;
    }
    position_ -= 2;
    return error(fmt::format("\\{} is not supported", c));
  }

  Result<CodePoints> hex_digits(uint32_t count) {
    char32_t value = 0;
    const bool braces = count == 4 && peek() == '{';
    if (braces) ++position_;
    uint32_t read = 0;
    for (; hex_value(peek()) >= 0 && (braces ? read < 6 : read < count); ++read, ++position_) {
      value = value * 16 + static_cast<char32_t>(hex_value(peek()));
    }
    if (braces ? read == 0 || peek() != '}' : read != count) return error("hexadecimal digits are missing");
    if (braces) ++position_;
    if (value > kLastCodePoint || (value >= kSurrogatesFirst && value <= kSurrogatesLast)) {
      return error("this is not a Unicode character");
    }
    return CodePoints({{value, value}});
  }

  Result<Regex> char_class() {
    ++position_;
    const bool inverted = peek() == '^';
    if (inverted) ++position_;
    CodePoints set;
    while (peek() != ']') {
      if (at_end()) return error("this character class is never closed");
      TRY(const CodePoints first, class_item());
      if (peek() != '-' || peek(1) == ']') {
        set.add(first);
        continue;
      }
      ++position_;
      TRY(const CodePoints last, class_item());
      const bool single = first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last &&
                          last.ranges().size() == 1 && last.ranges()[0].first == last.ranges()[0].last;
      if (!single) return error("a range needs a character at each end");
      if (last.ranges()[0].first < first.ranges()[0].first) return error("the ends of the range are swapped");
      set.add(first.ranges()[0].first, last.ranges()[0].first);
    }
    ++position_;
    return one_of(inverted ? set.complement() : std::move(set));
  }

  Result<CodePoints> class_item() {
    if (peek() == '\\') return escape(true);
    TRY(const char32_t value, character());
    return CodePoints({{value, value}});
  }

  std::string_view text_;
  std::size_t position_ = 0;
  uint32_t items_ = 0;
};

bool has_anchor(const Regex& regex) {
  return regex.kind == Regex::Kind::kBegin || regex.kind == Regex::Kind::kEnd ||
         std::any_of(regex.parts.begin(), regex.parts.end(), has_anchor);
}

// Takes the anchors at both ends away and puts "any text" where there were none.
Result<Regex> anchored(Regex regex) {
  if (regex.kind == Regex::Kind::kChoice) {
    for (Regex& part : regex.parts) {
      TRY(part, anchored(std::move(part)));
    }
    return regex;
  }
  if (regex.kind != Regex::Kind::kSequence) regex = Regex{.parts = {std::move(regex)}};
  // A group around everything.
  if (regex.parts.size() == 1 &&
      (regex.parts[0].kind == Regex::Kind::kChoice || regex.parts[0].kind == Regex::Kind::kSequence)) {
    Regex inner = std::move(regex.parts[0]);
    return anchored(std::move(inner));
  }
  std::vector<Regex>& parts = regex.parts;
  const auto is_begin = [](const Regex& part) { return part.kind == Regex::Kind::kBegin; };
  const auto is_end = [](const Regex& part) { return part.kind == Regex::Kind::kEnd; };
  const auto first = std::find_if_not(parts.begin(), parts.end(), is_begin);
  const bool begins = first != parts.begin();
  parts.erase(parts.begin(), first);
  bool ends = false;
  for (; !parts.empty() && is_end(parts.back()); ends = true) parts.pop_back();
  if (has_anchor(regex)) {
    return fail(Code::kInvalidArgument,
                "^ and $ are supported at the ends of the pattern or of its alternatives only");
  }
  if (!begins) parts.insert(parts.begin(), any_text());
  if (!ends) parts.push_back(any_text());
  return regex;
}

}  // namespace

Result<Regex> parse_regex(std::string_view pattern) {
  TRY(Regex regex, Parser(pattern).parse());
  return anchored(std::move(regex));
}

RegexLength length_of(const Regex& regex) {
  // Far beyond what counts, and far from overflow.
  constexpr uint64_t kEndless = kUnbounded;
  RegexLength result;
  switch (regex.kind) {
    case Regex::Kind::kSet:
      return {1, 1};
    case Regex::Kind::kSequence:
      for (const Regex& part : regex.parts) {
        const RegexLength length = length_of(part);
        result = {std::min(kEndless, result.min + length.min), std::min(kEndless, result.max + length.max)};
      }
      return result;
    case Regex::Kind::kChoice:
      result.min = kEndless;
      for (const Regex& part : regex.parts) {
        const RegexLength length = length_of(part);
        result = {std::min(result.min, length.min), std::max(result.max, length.max)};
      }
      return result;
    case Regex::Kind::kRepeat: {
      const RegexLength length = length_of(regex.parts[0]);
      result.min = std::min(kEndless, length.min * regex.min);
      result.max = length.max == 0           ? 0
                   : regex.max == kUnbounded ? kEndless
                                             : std::min(kEndless, length.max * regex.max);
      return result;
    }
    case Regex::Kind::kBegin:
    case Regex::Kind::kEnd:
      break;
  }
  return result;
}

NodeId add_regex(Rules& rules, const Regex& regex,
                 const std::function<NodeId(const CodePoints&)>& write_set) {
  std::vector<NodeId> parts;
  for (const Regex& part : regex.parts) parts.push_back(add_regex(rules, part, write_set));
  switch (regex.kind) {
    case Regex::Kind::kSet:
      return write_set(regex.set);
    case Regex::Kind::kChoice:
      return rules.choice(std::move(parts));
    case Regex::Kind::kRepeat:
      return rules.repeat(parts[0], regex.min, regex.max);
    case Regex::Kind::kSequence:
    case Regex::Kind::kBegin:
    case Regex::Kind::kEnd:
      break;
  }
  return rules.sequence(std::move(parts));
}

}  // namespace strata::grammar
