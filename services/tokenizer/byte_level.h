#pragma once
// The byte-level spelling of GPT-2 vocabularies: each byte has a printable character, so that a token's bytes
// can stand in a text file. Bytes that are printable in Latin-1 stand for themselves, the other 68 are
// U+0100, U+0101, ... in ascending order.

#include <string>
#include <string_view>

namespace strata::tokenizer {

// Appends the bytes that a token's spelling stands for; a character outside the table stands for its own
// UTF-8.
void append_spelled_bytes(std::string& out, std::string_view spelling);

}  // namespace strata::tokenizer
