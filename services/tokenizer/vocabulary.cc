#include "services/tokenizer/vocabulary.h"

#include <algorithm>
#include <string>
#include <utility>

#include "services/tokenizer/byte_level.h"

namespace strata::tokenizer {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kEos = "tokenizer.ggml.eos_token_id";
constexpr std::string_view kAddBos = "tokenizer.ggml.add_bos_token";

bool is_special_type(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined;
}

Status check_kind(const gguf::GgufFile& file) {
  TRY(const std::string_view model, file.get_string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return fail(Code::kInvalidArgument,
                "{}: tokenizer.ggml.model is \"{}\", only \"gpt2\" (byte-level BPE) is supported",
                file.path(), model);
  }
  TRY(const bool add_bos, file.get_bool_or(kAddBos, false));
  if (add_bos) {
    return fail(Code::kInvalidArgument,
                "{}: {} is true, no model of this family begins its texts with a token", file.path(),
                kAddBos);
  }
  return {};
}

Result<Pretokenizer> load_pretokenizer(const gguf::GgufFile& file) {
  TRY(const std::string_view name, file.get_string("tokenizer.ggml.pre"));
  auto pretokenizer = Pretokenizer::create(name);
  if (!pretokenizer) {
    return fail(pretokenizer.error().code(), "{}: tokenizer.ggml.pre: {}", file.path(),
                pretokenizer.error().message());
  }
  return pretokenizer;
}

Result<std::vector<TokenType>> load_types(const gguf::GgufFile& file, std::size_t count) {
  TRY(const std::vector<int64_t> values, file.get_int_array(kTypes));
  if (values.size() != count) {
    return fail(Code::kInvalidArgument, "{}: {} has {} entries for {} tokens", file.path(), kTypes,
                values.size(), count);
  }
  std::vector<TokenType> types;
  types.reserve(count);
  for (const int64_t value : values) {
    if (value < 1 || value > 6) {
      return fail(Code::kInvalidArgument, "{}: {}[{}] is {}, known are 1 to 6", file.path(), kTypes,
                  types.size(), value);
    }
    types.push_back(static_cast<TokenType>(value));
  }
  return types;
}

void add_tokens(Vocabulary& vocabulary, const std::vector<std::string_view>& tokens) {
  std::string bytes;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_special_type(vocabulary.types[i])) {
      vocabulary.symbols.add(tokens[i], /*findable=*/false);  // BPE must never arrive at one of these
    } else {
      bytes.clear();
      append_spelled_bytes(bytes, tokens[i]);
      vocabulary.symbols.add(bytes, /*findable=*/true);
    }
  }
}

void add_specials(Vocabulary& vocabulary) {
  for (Symbol id = 0; id < vocabulary.size; ++id) {
    if (is_special_type(vocabulary.types[id])) {
      vocabulary.specials.add(vocabulary.symbols.bytes(id), static_cast<TokenId>(id));
    }
  }
}

Status add_byte_tokens(Vocabulary& vocabulary, const std::string& path) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocabulary.byte_symbols[byte] = vocabulary.symbols.find(std::string_view(&c, 1));
    if (vocabulary.byte_symbols[byte] == kNoSymbol) {
      return fail(Code::kInvalidArgument, "{}: {} has no token for the byte 0x{:02X}", path, kTokens, byte);
    }
  }
  return {};
}

Symbol find_or_add(SymbolTable& symbols, std::string_view bytes) {
  const Symbol found = symbols.find(bytes);
  return found != kNoSymbol ? found : symbols.add(bytes, /*findable=*/true);
}

Status add_merges(Vocabulary& vocabulary, const std::vector<std::string_view>& merges,
                  const std::string& path) {
  std::string bytes;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::size_t space = merges[i].find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merges[i].size()) {
      return fail(Code::kInvalidArgument, "{}: {}[{}] is not \"left right\"", path, kMerges, i);
    }
    bytes.clear();
    append_spelled_bytes(bytes, merges[i].substr(0, space));
    const std::size_t left_bytes = bytes.size();
    append_spelled_bytes(bytes, merges[i].substr(space + 1));
    const std::string_view joined = bytes;
    const Symbol left = find_or_add(vocabulary.symbols, joined.substr(0, left_bytes));
    const Symbol right = find_or_add(vocabulary.symbols, joined.substr(left_bytes));
    vocabulary.merges.add(left, right, find_or_add(vocabulary.symbols, joined));
  }
  return {};
}

Status add_end_of_generation(Vocabulary& vocabulary, const gguf::GgufFile& file) {
  std::vector<TokenId>& ends = vocabulary.end_of_generation;
  if (file.find(kEos) != nullptr) {
    TRY(const uint64_t eos, file.get_uint(kEos));
    if (eos >= vocabulary.size) {
      return fail(Code::kInvalidArgument, "{}: {} is {} of {} tokens", file.path(), kEos, eos,
                  vocabulary.size);
    }
    ends.push_back(static_cast<TokenId>(eos));
  }
  // Files disagree on which of the two is "eos", so both always end an answer.
  for (const std::string_view spelling : {"<|im_end|>", "<|endoftext|>"}) {
    const TokenId id = vocabulary.find(spelling);
    if (id >= 0 && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  return {};
}

}  // namespace

bool Vocabulary::is_special(TokenId id) const {
  return id >= 0 && static_cast<uint32_t>(id) < size && is_special_type(types[static_cast<uint32_t>(id)]);
}

TokenId Vocabulary::find(std::string_view spelling) const {
  if (const TokenId special = specials.id_of(spelling); special >= 0) return special;
  const Symbol symbol = symbols.find(spelling);
  return symbol < size ? static_cast<TokenId>(symbol) : -1;
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::load(const gguf::GgufFile& file) {
  TRY_OK(check_kind(file));
  TRY(auto pretokenizer, load_pretokenizer(file));
  TRY(const auto tokens, file.get_string_array(kTokens));
  if (tokens.empty() || tokens.size() > INT32_MAX) {
    return fail(Code::kInvalidArgument, "{}: {} has {} entries", file.path(), kTokens, tokens.size());
  }
  TRY(auto types, load_types(file, tokens.size()));
  TRY(const auto merges, file.get_string_array(kMerges));

  auto vocabulary = std::make_shared<Vocabulary>(Vocabulary{.symbols = SymbolTable(tokens.size()),
                                                            .merges = MergeTable(merges.size()),
                                                            .size = static_cast<uint32_t>(tokens.size()),
                                                            .types = std::move(types),
                                                            .specials = {},
                                                            .byte_symbols = {},
                                                            .end_of_generation = {},
                                                            .pretokenizer = std::move(pretokenizer)});
  add_tokens(*vocabulary, tokens);
  TRY_OK(add_byte_tokens(*vocabulary, file.path()));
  TRY_OK(add_merges(*vocabulary, merges, file.path()));
  add_specials(*vocabulary);  // last: their spellings must not move any more
  TRY_OK(add_end_of_generation(*vocabulary, file));
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

}  // namespace strata::tokenizer
