#pragma once
// What a grammar must know of a model's tokens: their bytes, which are special, which end the answer. Made
// once per model; immutable, any thread may read it.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/grammar/token_trie.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::grammar {

struct VocabularyToken {
  enum class Kind : uint8_t {
    kOrdinary,  // stands for its bytes
    kSpecial,   // control or user-defined: only where a grammar names it
    kUnused,    // never
  };
  std::string bytes;  // of a special token its spelling
  Kind kind = Kind::kOrdinary;
};

class Vocabulary {
 public:
  // tokens: (vocab). Errors: kInvalidArgument if an end-of-generation id is beyond the tokens or there are
  // none.
  static Result<std::shared_ptr<const Vocabulary>> create(std::vector<VocabularyToken> tokens,
                                                          std::vector<int32_t> end_of_generation);
  static Result<std::shared_ptr<const Vocabulary>> from_tokenizer(const tokenizer::Tokenizer& tokenizer);

  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  // Words of a mask: bit t % 32 of word t / 32 belongs to token t; bits beyond the vocabulary are 0.
  uint32_t mask_words() const { return (size() + 31) / 32; }

  // The bytes that the token stands for; empty for tokens that only a grammar's naming allows, and for ids
  // outside.
  std::string_view bytes(int32_t id) const;
  std::optional<int32_t> special(std::string_view spelling) const;
  std::span<const int32_t> end_of_generation() const { return end_of_generation_; }
  bool is_end_of_generation(int32_t id) const;
  const TokenTrie& trie() const { return *trie_; }

 private:
  Vocabulary() = default;

  std::vector<VocabularyToken> tokens_;
  std::vector<int32_t> end_of_generation_;
  std::map<std::string_view, int32_t> specials_;  // spellings point into tokens_
  std::optional<TokenTrie> trie_;
};

}  // namespace strata::grammar
