#include "services/grammar/vocabulary.h"

#include <algorithm>

#include "services/grammar/limits.h"

namespace strata::grammar {

Result<std::shared_ptr<const Vocabulary>> Vocabulary::create(std::vector<VocabularyToken> tokens,
                                                             std::vector<int32_t> end_of_generation) {
  std::shared_ptr<Vocabulary> result(new Vocabulary);
  result->tokens_ = std::move(tokens);
  result->end_of_generation_ = std::move(end_of_generation);
  if (result->end_of_generation_.empty()) {
    return fail(Code::kInvalidArgument, "vocabulary: no token ends the generation");
  }
  for (const int32_t id : result->end_of_generation_) {
    if (id < 0 || static_cast<uint32_t>(id) >= result->size()) {
      return fail(Code::kInvalidArgument, "vocabulary: end-of-generation token {} of {}", id, result->size());
    }
    // Whatever its kind, it ends the answer and stands for no text.
    if (VocabularyToken& token = result->tokens_[static_cast<std::size_t>(id)];
        token.kind == VocabularyToken::Kind::kOrdinary) {
      token.kind = VocabularyToken::Kind::kSpecial;
    }
  }
  std::vector<TokenTrie::Entry> entries;
  for (std::size_t i = 0; i < result->tokens_.size(); ++i) {
    const VocabularyToken& token = result->tokens_[i];
    const auto id = static_cast<int32_t>(i);
    if (token.kind == VocabularyToken::Kind::kSpecial) result->specials_.emplace(token.bytes, id);
    if (!result->bytes(id).empty()) entries.push_back({token.bytes, id});
  }
  result->trie_.emplace(std::move(entries));
  return result;
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::from_tokenizer(const tokenizer::Tokenizer& tokenizer) {
  std::vector<VocabularyToken> tokens(tokenizer.vocab_size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    tokens[i].bytes = tokenizer.token_bytes(id);
    const tokenizer::TokenType type = tokenizer.token_type(id);
    if (tokenizer.is_special(id)) {
      tokens[i].kind = VocabularyToken::Kind::kSpecial;
    } else if (type == tokenizer::TokenType::kUnknown || type == tokenizer::TokenType::kUnused) {
      tokens[i].kind = VocabularyToken::Kind::kUnused;
    }
  }
  const auto ends = tokenizer.end_of_generation();
  return create(std::move(tokens), {ends.begin(), ends.end()});
}

std::string_view Vocabulary::bytes(int32_t id) const {
  if (id < 0 || static_cast<uint32_t>(id) >= size()) return {};
  const VocabularyToken& token = tokens_[static_cast<std::size_t>(id)];
  if (token.kind != VocabularyToken::Kind::kOrdinary || token.bytes.size() > kTokenBytesMax) return {};
  return token.bytes;
}

std::optional<int32_t> Vocabulary::special(std::string_view spelling) const {
  const auto found = specials_.find(spelling);
  return found == specials_.end() ? std::nullopt : std::optional(found->second);
}

bool Vocabulary::is_end_of_generation(int32_t id) const {
  return std::find(end_of_generation_.begin(), end_of_generation_.end(), id) != end_of_generation_.end();
}

}  // namespace strata::grammar
