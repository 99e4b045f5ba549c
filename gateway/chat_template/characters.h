#pragma once
// Walking a text character by character; for the string operations.

#include <string_view>

#include "services/tokenizer/utf8.h"

namespace strata::chat_template {

// The character that begins at a byte. Ill-formed bytes count as characters that have no properties.
struct Character {
  std::size_t begin;
  std::size_t end;
  char32_t value;
};

inline Character character_from(std::string_view text, std::size_t begin) {
  const tokenizer::Utf8Step step = tokenizer::utf8_step(text.substr(begin));
  const bool whole = step.kind == tokenizer::Utf8Step::Kind::kCharacter;
  return {begin, begin + step.bytes, whole ? step.value : 0xFFFD};
}

template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_from(text, at);
    visit(character);
    at = character.end;
  }
}

}  // namespace strata::chat_template
