#include "services/cli/probe_filler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "services/synthetic/random.h"

namespace strata::cli {

namespace {

constexpr std::array<std::string_view, 48> kWords = {
    "river",  "table", "seven", "north", "paper",  "light", "stone", "garden", "music",  "winter",
    "letter", "green", "clock", "bread", "window", "seed",  "horse", "number", "silver", "road",
    "the",    "a",     "and",   "of",    "in",     "with",  "under", "before", "after",  "between",
    "holds",  "makes", "turns", "finds", "keeps",  "opens", "reads", "moves",  "counts", "carries",
    "small",  "early", "quiet", "plain", "heavy",  "clear", "warm",  "deep"};
constexpr std::size_t kSentenceWords = 9;
constexpr uint64_t kMeasuredNumber = uint64_t{1} << 32;  // beyond those of the patterns

Result<double> prompt_tokens(const ProbeAsk& ask, const std::string& text) {
  TRY(const ProbeAnswer answer, ask({.messages = {{"user", text}}, .max_tokens = 1}));
  return static_cast<double>(answer.prompt_tokens);
}

}  // namespace

std::size_t TokenRate::words(double tokens) const {
  return static_cast<std::size_t>(std::max(1.0, std::round((tokens - per_message) / per_word)));
}

std::string filler_text(uint64_t seed, uint64_t number, std::size_t words) {
  synthetic::Random random(seed * 1'000'003 + number);
  std::string out = fmt::format("{:x}", random.next() & 0xFFFFFFFFFF);
  for (std::size_t i = 1; i < words; ++i) {
    if (i % kSentenceWords == 0) out += '.';
    out += ' ';
    out += kWords[random.next() % kWords.size()];
  }
  return out + '.';
}

Result<TokenRate> measure_token_rate(uint64_t seed, const ProbeAsk& ask) {
  constexpr std::size_t kFew = 20, kMany = 220;
  TRY(const double few, prompt_tokens(ask, filler_text(seed, kMeasuredNumber, kFew)));
  TRY(const double many, prompt_tokens(ask, filler_text(seed, kMeasuredNumber + 1, kMany)));
  if (many <= few)
    return fail(Code::kDataLoss, "a prompt of {} words has {} tokens, one of {} has {}", kFew, few, kMany,
                many);
  TokenRate rate{.per_word = (many - few) / (kMany - kFew)};
  // What the template adds to one message and the beginning of the answer, which is one, too.
  rate.per_message = std::max(0.0, (few - rate.per_word * kFew) / 2);
  return rate;
}

}  // namespace strata::cli
