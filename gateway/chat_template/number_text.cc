#include "gateway/chat_template/number_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace strata::chat_template {
namespace {

// Python takes white space of every kind around a number; digits other than ASCII ones are not taken here.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Takes out underscores that stand between digits; nullopt when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() || !is_word(text[i - 1]) || !is_word(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

}  // namespace

std::string int_text(__int128 value, unsigned base) {
  auto rest = static_cast<unsigned __int128>(value);
  if (value < 0) rest = -rest;
  std::string out;
  do {
    out.push_back("0123456789abcdef"[static_cast<unsigned>(rest % base)]);
    rest /= base;
  } while (rest != 0);
  if (value < 0) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto written =
      std::to_chars(buffer, buffer + sizeof(buffer), std::abs(value), std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(written.ptr - buffer));
  const std::size_t e = shortest.find('e');
  std::string digits(1, shortest[0]);
  if (e > 2) digits += shortest.substr(2, e - 2);
  int exponent = 0;
  const char* exponent_begin = buffer + e + (shortest[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, written.ptr, exponent);

  std::string out = std::signbit(value) ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += fmt::format(".{}", digits.substr(1));
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += fmt::format("0.{}{}", std::string(static_cast<std::size_t>(-exponent - 1), '0'), digits);
  } else if (count <= exponent + 1) {
    out += fmt::format("{}{}.0", digits, std::string(static_cast<std::size_t>(exponent + 1 - count), '0'));
  } else {
    const auto whole = static_cast<std::size_t>(exponent + 1);
    out += fmt::format("{}.{}", digits.substr(0, whole), digits.substr(whole));
  }
  return out;
}

std::optional<__int128> parse_int(std::string_view text, unsigned base) {
  text = trimmed(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  for (const auto& [lower, upper, prefix_base] :
       {std::tuple{"0x", "0X", 16u}, {"0o", "0O", 8u}, {"0b", "0B", 2u}}) {
    if (base == prefix_base && (text.starts_with(lower) || text.starts_with(upper))) text.remove_prefix(2);
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  __int128 value = 0;
  for (const char c : *digits) {
    const int digit = digit_of(c);
    if (digit >= static_cast<int>(base)) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<__int128>(base), &value)) return std::nullopt;
    if (__builtin_add_overflow(value, static_cast<__int128>(digit), &value)) return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = trimmed(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto digits = without_underscores(text);
  // from_chars also reads what stands in parentheses behind nan, and a second sign.
  if (!digits || digits->empty() || digits->find_first_of("(-+") == 0 ||
      digits->find('(') != std::string::npos) {
    return std::nullopt;
  }
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto read = std::from_chars(digits->data(), end, value);
  if (read.ptr != end || read.ec == std::errc::invalid_argument) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) {  // the sign of the exponent says which way
    const std::size_t e = digits->find_first_of("eE");
    value = e != std::string::npos && (*digits)[e + 1] == '-' ? 0.0 : HUGE_VAL;
  }
  return negative ? -value : value;
}

double round_decimals(double value, int decimals) {
  if (!std::isfinite(value) || decimals > 323) return value;
  if (decimals < 0) {
    const double unit = std::pow(10.0, -decimals);
    return std::isinf(unit) ? 0.0 : std::nearbyint(value / unit) * unit;
  }
  return parse_float(fmt::format("{:.{}f}", value, decimals)).value_or(value);
}

}  // namespace strata::chat_template
