#pragma once
// What the probe says: filler text without meaning, the same for the same seed and number, in lengths that
// come near a number of tokens of a tokenizer it does not know.

#include <cstdint>
#include <string>

#include "services/base/status.h"
#include "services/cli/probe_client.h"

namespace strata::cli {

// How a server counts: a message of n words has per_message + n * per_word tokens.
struct TokenRate {
  double per_word = 1;
  double per_message = 0;  // of the template

  std::size_t words(double tokens) const;  // of a message of that many tokens; at least 1
};

// The first word is a mark of seed and number: texts of two numbers differ from there on.
std::string filler_text(uint64_t seed, uint64_t number, std::size_t words);

// Asks for the lengths of two prompts that no pattern uses. kDataLoss: they do not grow with the text.
Result<TokenRate> measure_token_rate(uint64_t seed, const ProbeAsk& ask);

}  // namespace strata::cli
