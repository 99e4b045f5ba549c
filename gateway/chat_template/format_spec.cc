#include "gateway/chat_template/format_spec.h"

#include <algorithm>
#include <cmath>

#include "gateway/chat_template/interpreter.h"
#include "gateway/chat_template/number_text.h"
#include "services/tokenizer/utf8.h"

namespace strata::chat_template {
namespace {

constexpr std::string_view kAligns = "<>^=";
constexpr std::string_view kIntegerTypes = "dnxXob";
constexpr std::string_view kFloatTypes = "fFeEgG%";

bool is_one_of(char c, std::string_view set) { return c != '\0' && set.find(c) != std::string_view::npos; }

// Reads digits; more than the bound is an error.
std::size_t take_number(std::string_view& rest, std::size_t max) {
  std::size_t value = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    value = 10 * value + static_cast<std::size_t>(rest[0] - '0');
    if (value > max) raise("a width or precision of more than {} in a format", max);
    rest.remove_prefix(1);
  }
  return value;
}

// Digits of the whole part in groups of three (four for hexadecimal and the like).
std::string grouped(const std::string& digits, char separator, std::size_t group) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out + digits.substr(whole);
}

// Without sign.
std::string float_digits(double value, const FormatSpec& spec) {
  const double size = std::abs(value);
  if (!std::isfinite(size)) return std::isnan(size) ? "nan" : "inf";
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", size, precision);
    case 'e':
      return fmt::format("{:.{}e}", size, precision);
    case 'E':
      return fmt::format("{:.{}E}", size, precision);
    case 'g':
      return fmt::format("{:.{}g}", size, std::max(precision, 1));
    case 'G':
      return fmt::format("{:.{}G}", size, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", size * 100, precision);
    default:
      break;
  }
  return spec.precision < 0 ? float_text(size) : fmt::format("{:.{}g}", size, std::max(precision, 1));
}

std::string integer_digits(Int value, const FormatSpec& spec) {
  const std::string text = int_text(value, spec.type == 'x' || spec.type == 'X' ? 16
                                           : spec.type == 'o'                   ? 8
                                           : spec.type == 'b'                   ? 2
                                                                                : 10);
  std::string digits = text.starts_with('-') ? text.substr(1) : text;
  if (spec.type == 'X')
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c; });
  if (digits.size() < static_cast<std::size_t>(std::max(spec.precision, 0))) {  // of % only
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  }
  return digits;
}

MarkedText padded(Budget& budget, const MarkedText& text, const FormatSpec& spec, char default_align) {
  const std::size_t length = character_count(text.text());
  if (length >= spec.width) return text;
  const std::size_t missing = spec.width - length;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return pad(budget, text, left, missing - left, MarkedText(spec.fill, spec.origin));
}

MarkedText format_number(Budget& budget, const Value& value, const FormatSpec& spec) {
  const bool whole = value.is_integer() && !is_one_of(spec.type, kFloatTypes);
  if (spec.type != '\0' && !is_one_of(spec.type, whole ? kIntegerTypes : kFloatTypes)) {
    raise("unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  }
  std::string digits = whole ? integer_digits(value.to_int(), spec) : float_digits(value.to_double(), spec);
  const bool negative = whole ? value.to_int() < 0 : std::signbit(value.to_double());
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping, is_one_of(spec.type, "xXob") ? 4 : 3);
  std::string front;
  if (negative) {
    front.push_back('-');
  } else if (spec.sign != '-') {
    front.push_back(spec.sign);
  }
  if (spec.alternate && is_one_of(spec.type, "xXob")) front += fmt::format("0{}", spec.type);
  if (spec.align == '=') {
    const std::size_t length = front.size() + digits.size();
    for (std::size_t i = length; i < spec.width; ++i) front += spec.fill;
  }
  return padded(budget, MarkedText(front + digits, value.origin), spec, '>');
}

}  // namespace

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  std::string_view rest = text;
  const auto take_one_of = [&](std::string_view set) {
    if (rest.empty() || !is_one_of(rest[0], set)) return '\0';
    const char c = rest[0];
    rest.remove_prefix(1);
    return c;
  };
  if (!rest.empty()) {
    const std::size_t first = tokenizer::utf8_step(rest).bytes;
    if (first < rest.size() && is_one_of(rest[first], kAligns)) {
      spec.fill = rest.substr(0, first);
      rest.remove_prefix(first);
    }
  }
  spec.align = take_one_of(kAligns);
  if (const char sign = take_one_of("+- "); sign != '\0') spec.sign = sign;
  spec.alternate = take_one_of("#") != '\0';
  if (take_one_of("0") != '\0' && spec.align == '\0') {
    spec.align = '=';
    spec.fill.assign(1, '0');
  }
  spec.width = take_number(rest, kFormatWidthMax);
  spec.grouping = take_one_of(",_");
  if (take_one_of(".") != '\0') spec.precision = static_cast<int>(take_number(rest, kFormatPrecisionMax));
  if (rest.size() > 1) raise("invalid format specifier '{}'", text);
  if (!rest.empty()) spec.type = rest[0];
  return spec;
}

MarkedText format_value(Budget& budget, const Value& value, const FormatSpec& spec) {
  const bool flag_as_word = std::holds_alternative<bool>(value.data) && spec.type == '\0' && spec.width == 0;
  if (value.is_number() && spec.type != 's' && !flag_as_word) return format_number(budget, value, spec);
  if (spec.type != '\0' && spec.type != 's')
    raise("unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  MarkedText text = to_text(budget, value);
  if (spec.precision >= 0) {
    const CharacterIndex characters(text.text());
    text = text.slice(
        0, characters.begin(std::min(static_cast<std::size_t>(spec.precision), characters.count())));
  }
  FormatSpec of_text = spec;
  if (of_text.align == '=') of_text.align = '<';
  return padded(budget, text, of_text, '<');
}

}  // namespace strata::chat_template
