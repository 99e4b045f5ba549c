#include "gateway/chat_template/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gateway/chat_template/format_spec.h"

namespace strata::chat_template {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Value truncated(const Value& value) {
  if (!value.is_number()) raise("%d format: a real number is required, not {}", type_name(value));
  if (value.is_integer()) return Value::integer(value.to_int(), value.origin);
  const double whole = std::trunc(value.to_double());
  if (!(std::abs(whole) < 0x1p120)) raise("cannot convert float to integer");
  return Value::integer(static_cast<Int>(whole), value.origin);
}

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& run, const MarkedText& pattern, const Value& values)
      : run_(run), pattern_(pattern), values_(values), out_(run.budget()) {
    const auto* sequence = values.as<Sequence>();
    if (sequence != nullptr && sequence->kind == Sequence::Kind::kTuple) {
      queue_ = sequence->items;
    } else {
      queue_ = {values};
      named_ = values.as<Dict>() != nullptr || sequence != nullptr;  // what can be subscripted may go unused
    }
  }

  MarkedText format() {
    const std::string_view whole = pattern_.text();
    std::size_t done = 0;
    for (at_ = whole.find('%'); at_ != std::string_view::npos; at_ = whole.find('%', done)) {
      out_.append(pattern_, done, at_);
      convert();
      done = at_;
    }
    out_.append(pattern_, done, whole.size());
    if (next_ < queue_.size() && !named_) raise("not all arguments converted during string formatting");
    return out_.take();
  }

 private:
  char current() const {
    if (at_ >= pattern_.size()) raise("incomplete format");
    return pattern_.text()[at_];
  }

  const Value& next_value() {
    if (next_ == queue_.size()) raise("not enough arguments for format string");
    return queue_[next_++];
  }

  std::size_t take_number(std::size_t max) {
    std::size_t value = 0;
    for (; is_digit(current()); ++at_) {
      value = 10 * value + static_cast<std::size_t>(current() - '0');
      if (value > max) raise("a width or precision of more than {} in a format", max);
    }
    return value;
  }

  std::optional<Value> take_named() {
    if (current() != '(') return std::nullopt;
    const std::size_t close = pattern_.text().find(')', at_);
    if (close == std::string::npos) raise("incomplete format key");
    if (values_.as<Dict>() == nullptr) raise("format requires a mapping");
    const std::string_view key = std::string_view(pattern_.text()).substr(at_ + 1, close - at_ - 1);
    const Value* value = values_.as<Dict>()->find(key);
    if (value == nullptr) raise("the format has no value for '{}'", key);
    at_ = close + 1;
    next_ = queue_.size();
    return *value;
  }

  void take_flags(FormatSpec& spec) {
    bool zero = false;
    for (;; ++at_) {
      const char c = current();
      if (c == '-') {
        spec.align = '<';
      } else if (c == '0') {
        zero = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    if (spec.align == '\0') spec.align = '>';
    zero_ = zero && spec.align != '<';
  }

  // From the percent sign to behind the type.
  void convert() {
    FormatSpec spec;
    spec.origin = pattern_.origin_at(at_);
    ++at_;
    std::optional<Value> value = take_named();
    take_flags(spec);
    spec.width = take_number(kFormatWidthMax);
    if (current() == '.') {
      ++at_;
      spec.precision = static_cast<int>(take_number(kFormatPrecisionMax));
    }
    spec.type = current();
    ++at_;
    if (spec.type == '%') {
      out_.append("%", spec.origin);
      return;
    }
    if (!value) value = next_value();
    out_.append(converted(*value, spec));
  }

  MarkedText converted(const Value& value, FormatSpec spec) const {
    Budget& budget = run_.budget();
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        const MarkedText text = spec.type == 's' ? to_text(budget, value) : to_quoted_text(budget, value);
        spec.type = 's';
        return format_value(budget, Value::string(text), spec);
      }
      case 'i':
      case 'u':
      case 'd':
        spec.type = 'd';
        return format_value(budget, truncated(value), with_zeros(spec));
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integer())
          raise("%{} format: an integer is required, not {}", spec.type, type_name(value));
        return format_value(budget, truncated(value), with_zeros(spec));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) raise("must be real number, not {}", type_name(value));
        return format_value(budget, Value::number(value.to_double(), value.origin), with_zeros(spec));
      default:
        raise("unsupported format character '{}'", spec.type);
    }
  }

  FormatSpec with_zeros(FormatSpec spec) const {
    if (zero_) {
      spec.align = '=';
      spec.fill.assign(1, '0');
    }
    return spec;
  }

  Interpreter& run_;
  const MarkedText& pattern_;
  const Value& values_;
  TextBuilder out_;
  std::vector<Value> queue_;
  std::size_t next_ = 0;
  bool named_ = false;
  bool zero_ = false;
  std::size_t at_ = 0;
};

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& run, const Arguments& arguments) : run_(run), arguments_(arguments) {}

  // A format spec may hold fields of its own, one level deep.
  MarkedText format(const MarkedText& pattern, bool nested) {
    TextBuilder out(run_.budget());
    const std::string_view whole = pattern.text();
    std::size_t done = 0;
    for (std::size_t at = whole.find_first_of("{}"); at != std::string_view::npos;
         at = whole.find_first_of("{}", done)) {
      out.append(pattern, done, at);
      if (at + 1 < whole.size() && whole[at + 1] == whole[at]) {
        out.append(pattern, at, at + 1);
        done = at + 2;
        continue;
      }
      if (whole[at] == '}') raise("single '}}' encountered in format string");
      const std::size_t close = matching_brace(whole, at);
      out.append(field(pattern, at + 1, close, nested));
      done = close + 1;
    }
    out.append(pattern, done, whole.size());
    return out.take();
  }

 private:
  static std::size_t matching_brace(std::string_view text, std::size_t open) {
    std::size_t depth = 0;
    for (std::size_t at = open; at < text.size(); ++at) {
      if (text[at] == '{') ++depth;
      if (text[at] == '}' && --depth == 0) return at;
    }
    raise("expected '}}' before end of string");
  }

  MarkedText field(const MarkedText& pattern, std::size_t begin, std::size_t end, bool nested) {
    const std::string_view whole = std::string_view(pattern.text()).substr(0, end);
    std::size_t name_end = std::min(whole.find_first_of("!:", begin), end);
    Value value = look_up(whole.substr(begin, name_end - begin));
    if (name_end < end && whole[name_end] == '!') {
      const char conversion = name_end + 1 < end ? whole[name_end + 1] : '\0';
      if (conversion != 's' && conversion != 'r' && conversion != 'a')
        raise("unknown conversion specifier in a format");
      value = Value::string(conversion == 's' ? to_text(run_.budget(), value)
                                              : to_quoted_text(run_.budget(), value));
      name_end += 2;
      if (name_end < end && whole[name_end] != ':') raise("expected ':' after conversion specifier");
    }
    if (name_end >= end) return to_text(run_.budget(), value);
    MarkedText spec_text = pattern.slice(name_end + 1, end);
    if (spec_text.text().find('{') != std::string::npos) {
      if (nested) raise("a format is nested too deeply");
      spec_text = format(spec_text, true);
    }
    FormatSpec spec = parse_format_spec(spec_text.text());
    spec.origin = spec_text.empty() ? Origin::kTemplate : spec_text.runs().front().origin;
    return format_value(run_.budget(), value, spec);
  }

  Value look_up(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first_end));
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const std::size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        value = run_.attribute(value, rest.substr(1, end - 1));
        rest.remove_prefix(end);
      } else {
        const std::size_t end = rest.find(']');
        if (end == std::string_view::npos) raise("missing ']' in format string");
        value = run_.item(value, key_of(rest.substr(1, end - 1)));
        rest.remove_prefix(end + 1);
      }
      if (const auto* undefined = std::get_if<Undefined>(&value.data)) raise("{}", *undefined->reason);
    }
    return value;
  }

  static std::optional<std::size_t> number_of(std::string_view text) {
    std::size_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
    return value;
  }

  static Value key_of(std::string_view text) {
    const auto number = number_of(text);
    return number ? Value::integer(static_cast<Int>(*number)) : Value::literal(text);
  }

  Value argument(std::string_view name) {
    const auto number = number_of(name);
    if (name.empty() || number) {
      const std::size_t i = number ? *number : automatic_++;
      if (i >= arguments_.positional.size())
        raise("replacement index {} out of range for positional args", i);
      return arguments_.positional[i];
    }
    for (const auto& [keyword, value] : arguments_.named) {
      if (keyword == name) return value;
    }
    raise("the format has no value for '{}'", name);
  }

  Interpreter& run_;
  const Arguments& arguments_;
  std::size_t automatic_ = 0;
};

}  // namespace

MarkedText format_percent(Interpreter& run, const MarkedText& pattern, const Value& values) {
  return PercentFormatter(run, pattern, values).format();
}

MarkedText format_braces(Interpreter& run, const MarkedText& pattern, const Arguments& arguments) {
  return BraceFormatter(run, arguments).format(pattern, false);
}

}  // namespace strata::chat_template
