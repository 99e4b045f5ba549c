#pragma once
// Strict UTF-8, one step at a time. An ill-formed sequence is reported as its maximal subpart (Unicode 15,
// section 3.9), so that replacing each by U+FFFD gives what every other decoder gives.

#include <cstdint>
#include <string>
#include <string_view>

namespace strata::tokenizer {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Step {
  enum class Kind : uint8_t {
    kCharacter,   // a well-formed character
    kIllFormed,   // bytes that no continuation can make well-formed
    kIncomplete,  // the text ends inside a character
  };
  Kind kind = Kind::kIllFormed;
  uint8_t bytes = 0;   // at least 1
  char32_t value = 0;  // of a character
};

// text must not be empty.
Utf8Step utf8_step(std::string_view text);

// The length of the longest well-formed prefix.
std::size_t utf8_valid_prefix(std::string_view text);

// value must be a Unicode scalar value.
void utf8_append(std::string& out, char32_t value);

}  // namespace strata::tokenizer
