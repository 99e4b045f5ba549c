#pragma once
// One conversion of a format string, and its application to a value.

#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/chat_template/value.h"

namespace strata::chat_template {

struct FormatSpec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > ^ =, or the type's own
  char sign = '-';         // - + or a space
  bool alternate = false;  // 0x and the like
  char grouping = '\0';    // , or _
  std::size_t width = 0;
  int precision = -1;
  char type = '\0';
  Origin origin = Origin::kTemplate;  // of the format string: padding has it
};

inline constexpr std::size_t kFormatWidthMax = 1'000'000;
inline constexpr int kFormatPrecisionMax = 1000;

// The mini-language behind the colon: [[fill]align][sign][#][0][width][grouping][.precision][type].
FormatSpec parse_format_spec(std::string_view text);

// Numbers by their type, everything else as a string.
MarkedText format_value(Budget& budget, const Value& value, const FormatSpec& spec);

}  // namespace strata::chat_template
