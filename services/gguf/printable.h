#pragma once
// Text from a file made fit to print: names and strings of a GGUF file are arbitrary bytes of arbitrary
// length.

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::gguf {

inline constexpr std::size_t kPrintableCharsMax = 120;

// Valid UTF-8 on one line: control characters become \n, \t or \x1f, bytes that are not UTF-8 become U+FFFD.
// At most `chars_max` characters of the input; "..." stands for the rest.
std::string printable(std::string_view text, std::size_t chars_max = kPrintableCharsMax);

// The whole text with U+FFFD for bytes that are not UTF-8: what a JSON string may hold.
std::string valid_utf8(std::string_view text);

}  // namespace strata::gguf
