#include "services/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

#include "services/tokenizer/normalize.h"
#include "services/tokenizer/utf8.h"
#include "services/tokenizer/vocabulary.h"

namespace strata::tokenizer {
namespace {

// Encodes the text of one call; keeps the buffers that every piece needs.
class Encoder {
 public:
  explicit Encoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary), merger_(vocabulary.merges) {}

  // Special tokens are looked for in template runs only, and a spelling must lie wholly in one: runs are
  // maximal, so a spelling of template bytes never crosses a seam. What stands between them is ordinary text
  // whatever its origin, and is normalised, split and merged as one string.
  std::vector<TokenId> encode(std::string_view text, std::span<const MarkedText::Run> runs) {
    std::size_t done = 0;
    for (const MarkedText::Run& run : runs) {
      if (run.origin != Origin::kTemplate) continue;
      std::size_t at = run.begin;
      while (const auto found = vocabulary_.specials.find(text, at, run.end)) {
        encode_ordinary(text.substr(done, found->begin - done));
        ids_.push_back(found->id);
        done = at = found->end;
      }
    }
    encode_ordinary(text.substr(done));
    return std::move(ids_);
  }

 private:
  void encode_ordinary(std::string_view text) {
    while (!text.empty()) {
      const std::size_t valid = utf8_valid_prefix(text);
      if (valid > 0) encode_valid(text.substr(0, valid));
      text.remove_prefix(valid);
      if (text.empty()) break;
      const uint8_t broken = utf8_step(text).bytes;
      for (const char c : text.substr(0, broken)) emit(vocabulary_.byte_symbols[static_cast<uint8_t>(c)]);
      text.remove_prefix(broken);
    }
  }

  void encode_valid(std::string_view text) {
    std::string normalised;
    if (!is_plainly_nfc(text)) text = normalised = to_nfc(text);
    ends_.clear();
    vocabulary_.pretokenizer.split(text, ends_);
    std::size_t begin = 0;
    for (const std::size_t end : ends_) {
      encode_piece(text.substr(begin, end - begin));
      begin = end;
    }
  }

  void encode_piece(std::string_view piece) {
    symbols_.clear();
    for (const char c : piece) symbols_.push_back(vocabulary_.byte_symbols[static_cast<uint8_t>(c)]);
    merger_.merge(symbols_);
    for (const Symbol symbol : symbols_) emit(symbol);
  }

  void emit(Symbol symbol) {
    if (symbol < vocabulary_.size) {
      ids_.push_back(static_cast<TokenId>(symbol));
      return;
    }
    for (const char c : vocabulary_.symbols.bytes(symbol))
      emit(vocabulary_.byte_symbols[static_cast<uint8_t>(c)]);
  }

  const Vocabulary& vocabulary_;
  Merger merger_;
  std::vector<TokenId> ids_;
  std::vector<std::size_t> ends_;
  std::vector<Symbol> symbols_;
};

std::vector<TokenId> encode_whole(const Vocabulary& vocabulary, std::string_view text, Origin origin) {
  const std::array runs = {MarkedText::Run{0, text.size(), origin}};
  return Encoder(vocabulary).encode(text, runs);
}

}  // namespace

struct Tokenizer::Impl {
  std::shared_ptr<const Vocabulary> vocabulary;
};

Result<Tokenizer> Tokenizer::from_gguf(const gguf::GgufFile& file) {
  TRY(auto vocabulary, Vocabulary::load(file));
  return Tokenizer(std::make_shared<const Impl>(Impl{std::move(vocabulary)}));
}

uint32_t Tokenizer::vocab_size() const { return impl_->vocabulary->size; }

std::vector<TokenId> Tokenizer::encode(const MarkedText& text) const {
  return Encoder(*impl_->vocabulary).encode(text.text(), text.runs());
}

std::vector<TokenId> Tokenizer::encode_trusted(std::string_view text) const {
  return encode_whole(*impl_->vocabulary, text, Origin::kTemplate);
}

std::vector<TokenId> Tokenizer::encode_untrusted(std::string_view text) const {
  return encode_whole(*impl_->vocabulary, text, Origin::kRequest);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || static_cast<uint32_t>(id) >= vocab_size()) return {};
  return impl_->vocabulary->symbols.bytes(static_cast<Symbol>(id));
}

TokenType Tokenizer::token_type(TokenId id) const {
  if (id < 0 || static_cast<uint32_t>(id) >= vocab_size()) return TokenType::kUnknown;
  return impl_->vocabulary->types[static_cast<uint32_t>(id)];
}

bool Tokenizer::is_special(TokenId id) const { return impl_->vocabulary->is_special(id); }

TokenId Tokenizer::find_token(std::string_view spelling) const { return impl_->vocabulary->find(spelling); }

std::span<const TokenId> Tokenizer::end_of_generation() const { return impl_->vocabulary->end_of_generation; }

bool Tokenizer::is_end_of_generation(TokenId id) const {
  const auto ends = end_of_generation();
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

}  // namespace strata::tokenizer
