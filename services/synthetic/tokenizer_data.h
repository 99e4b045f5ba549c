#pragma once
// The tokenizer of a small model: the 256 bytes, a few merges, the marks of a chat, and words that
// no text makes, only a model can say.

#include "services/gguf/file_builder.h"

namespace strata::synthetic {

// Without such words.
inline constexpr uint32_t kVocabularyMin = 256 + 4 + 5;
inline constexpr uint32_t kEndOfText = 256 + 4;

// Writes the tokenizer.* keys; `vocabulary` is at least kVocabularyMin, the rest are words.
void add_tokenizer(gguf::FileBuilder& file, uint32_t vocabulary);

}  // namespace strata::synthetic
