#pragma once
// The escapes of string literals, which are Python's.

#include <cstdint>
#include <string>
#include <string_view>

namespace strata::chat_template {

// literal: between the quotes. Unknown escapes stay as they are. Raises for escapes that end too early.
std::string decode_string_literal(std::string_view literal, uint32_t line);

}  // namespace strata::chat_template
