#pragma once
// Where the special tokens of a prompt stand in its text. They are the only places at which text and tokens
// can be brought together without guessing: the tokenizer cuts special tokens out first and turns what stands
// between them into tokens piece by piece (normalised, so that bytes may change their number), so the tokens
// before a special token's place never depend on what stands behind it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

struct SpecialPlace {
  uint32_t token = 0;              // its index in the tokens
  std::size_t begin = 0, end = 0;  // its spelling in the text
};

// tokens: tokenizer.encode(text), nothing else. All of them, in rising order.
//
// Exact because the tokenizer takes, from left to right, the earliest spelling of any special token that lies
// in text of the template, and goes on behind it; other text never becomes a special token. So the n-th
// special token is spelled at its place, and is not spelled anywhere between there and the end of the one
// before, or that would have been taken first.
std::vector<SpecialPlace> special_places(const tokenizer::Tokenizer& tokenizer,
                                         const tokenizer::MarkedText& text, std::span<const int32_t> tokens);

}  // namespace strata::gateway
