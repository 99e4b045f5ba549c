#pragma once
// Byte-level BPE of the Qwen family, entirely from the GGUF's own keys (spec: gguf-qwen4exp, section 4).
// Immutable after from_gguf(); any thread may call.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/gguf/gguf_file.h"
#include "services/tokenizer/marked_text.h"

namespace strata::tokenizer {

using TokenId = int32_t;

enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

class Tokenizer {
 public:
  // Errors name the GGUF key: kNotFound (missing), kInvalidArgument (sizes differ, unknown model or
  // pre-tokenizer).
  static Result<Tokenizer> from_gguf(const gguf::GgufFile& file);

  uint32_t vocab_size() const;

  // Special tokens (control and user-defined) are recognised in template runs only; everything else goes
  // through NFC, the split and BPE, across the seams between runs.
  std::vector<TokenId> encode(const MarkedText& text) const;
  // All of the text is trusted / none of it is.
  std::vector<TokenId> encode_trusted(std::string_view text) const;
  std::vector<TokenId> encode_untrusted(std::string_view text) const;

  // The bytes of one token (may be half a UTF-8 character); special tokens give their spelling. Empty for
  // unknown ids.
  std::string_view token_bytes(TokenId id) const;
  TokenType token_type(TokenId id) const;
  bool is_special(TokenId id) const;  // control or user-defined
  // The id whose token_bytes() are exactly these, a special token first; or -1.
  TokenId find_token(std::string_view spelling) const;

  // eos_token_id of the file and always the tokens spelled <|im_end|> and <|endoftext|>.
  std::span<const TokenId> end_of_generation() const;
  bool is_end_of_generation(TokenId id) const;

  std::string decode(std::span<const TokenId> ids) const;  // invalid UTF-8 becomes U+FFFD

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// Turns tokens into text piece by piece; what comes out is always whole, valid UTF-8. A character that spans
// tokens is held back until it is complete; bytes that can never become a character come out as U+FFFD.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(TokenId id);
  // At the end of an answer: drops an incomplete character (api-cases 21) and resets.
  void finish() { pending_.clear(); }
  bool pending() const { return !pending_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace strata::tokenizer
