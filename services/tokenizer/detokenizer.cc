#include <utility>

#include "services/tokenizer/tokenizer.h"
#include "services/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

// Takes everything from `bytes` that is decided: whole characters as they are, ill-formed sequences as
// U+FFFD. What remains is empty or the beginning of a character.
std::string take_decided(std::string& bytes) {
  std::string out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const std::size_t valid = utf8_valid_prefix(rest);
    out.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    out.append(kReplacementCharacter);
    rest.remove_prefix(step.bytes);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return out;
}

}  // namespace

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes.append(token_bytes(id));
  std::string text = take_decided(bytes);
  if (!bytes.empty()) text.append(kReplacementCharacter);
  return text;
}

std::string Detokenizer::push(TokenId id) {
  pending_.append(tokenizer_->token_bytes(id));
  return take_decided(pending_);
}

}  // namespace strata::tokenizer
