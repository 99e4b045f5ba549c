#pragma once
// What a GGUF says about its tokens, checked and turned into tables. Holds copies: the file may be closed
// afterwards.

#include <array>
#include <cstdint>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/gguf_file.h"
#include "services/tokenizer/merge_table.h"
#include "services/tokenizer/pretokenizer.h"
#include "services/tokenizer/special_tokens.h"
#include "services/tokenizer/symbol_table.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::tokenizer {

struct Vocabulary {
  // Symbols below `size` are the token ids; the ones above are results of merges that are no tokens.
  SymbolTable symbols;
  MergeTable merges;
  uint32_t size = 0;
  std::vector<TokenType> types;
  SpecialTokens specials;  // spellings point into symbols
  std::array<Symbol, 256> byte_symbols{};
  std::vector<TokenId> end_of_generation;
  Pretokenizer pretokenizer;

  bool is_special(TokenId id) const;
  TokenId find(std::string_view spelling) const;  // -1: none

  static Result<std::shared_ptr<const Vocabulary>> load(const gguf::GgufFile& file);
};

}  // namespace strata::tokenizer
