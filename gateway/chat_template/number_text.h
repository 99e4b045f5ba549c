#pragma once
// Numbers as Python prints and reads them.

#include <optional>
#include <string>
#include <string_view>

namespace strata::chat_template {

// In the given base, 2 to 16, lower case; a minus in front of negative ones.
std::string int_text(__int128 value, unsigned base = 10);
// The shortest digits that read back as the same number, in Python's layout: 1.0, 0.1, 1e+16, 1e-05, inf,
// nan.
std::string float_text(double value);

// As int() and float() take strings: white space around, underscores between digits. nullopt: no such number.
std::optional<__int128> parse_int(std::string_view text, unsigned base = 10);
std::optional<double> parse_float(std::string_view text);

// Rounds to so many decimals, ties by the exact value as Python's round() does.
double round_decimals(double value, int decimals);

}  // namespace strata::chat_template
