#pragma once
// A small vocabulary in a GGUF that lives in memory: the 256 byte tokens, then what a test adds.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "services/gguf/gguf_file.h"
#include "services/tokenizer/tokenizer.h"
#include "services/tokenizer/utf8.h"

namespace strata::tokenizer::tests {

class TestVocabulary {
 public:
  TestVocabulary() {
    std::string next;
    for (unsigned byte = 0, shifted = 0x100; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      next.clear();
      utf8_append(next, printable ? byte : shifted++);
      tokens.emplace_back(next, TokenType::kNormal);
    }
  }

  TokenId add(std::string spelling, TokenType type) {
    tokens.emplace_back(std::move(spelling), type);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  // A merge together with the token that it makes.
  TokenId add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right, TokenType::kNormal);
  }

  // Keys named in `without` are left out.
  Result<Tokenizer> load(const std::vector<std::string>& without = {}) {
    bytes_ = file_bytes(without);
    TRY(const auto file, gguf::GgufFile::parse(std::as_bytes(std::span(bytes_)), "test.gguf"));
    return Tokenizer::from_gguf(file);
  }
  Tokenizer load_or_fail() {
    auto tokenizer = load();
    EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
    return std::move(tokenizer).value();
  }

  std::string model = "gpt2";
  std::string pre = "qwen35";
  std::vector<std::pair<std::string, TokenType>> tokens;
  std::vector<std::string> merges;
  std::vector<int32_t> types_instead;  // written in place of the tokens' own when not empty
  int64_t eos = -1;                    // written when not negative
  bool add_bos = false;

 private:
  template <class T>
  static void put(std::string& out, T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
  }
  static void put_string(std::string& out, const std::string& text) {
    put<uint64_t>(out, text.size());
    out += text;
  }
  static std::string scalar(gguf::ValueType type, const std::string& payload) {
    std::string out;
    put(out, static_cast<uint32_t>(type));
    return out + payload;
  }
  static std::string text_value(const std::string& text) {
    std::string payload;
    put_string(payload, text);
    return scalar(gguf::ValueType::kString, payload);
  }
  template <class Items, class Put>
  static std::string array_value(gguf::ValueType element, const Items& items, Put put_item) {
    std::string payload;
    put(payload, static_cast<uint32_t>(element));
    put<uint64_t>(payload, items.size());
    for (const auto& item : items) put_item(payload, item);
    return scalar(gguf::ValueType::kArray, payload);
  }

  std::string file_bytes(const std::vector<std::string>& without) const {
    std::vector<int32_t> types = types_instead;
    if (types.empty()) {
      for (const auto& [spelling, type] : tokens) types.push_back(static_cast<int32_t>(type));
    }
    std::vector<std::pair<std::string, std::string>> keys = {
        {"general.architecture", text_value("qwen4exp")},
        {"tokenizer.ggml.model", text_value(model)},
        {"tokenizer.ggml.pre", text_value(pre)},
        {"tokenizer.ggml.tokens",
         array_value(gguf::ValueType::kString, tokens,
                     [](auto& out, const auto& token) { put_string(out, token.first); })},
        {"tokenizer.ggml.token_type",
         array_value(gguf::ValueType::kI32, types, [](auto& out, int32_t type) { put(out, type); })},
        {"tokenizer.ggml.merges", array_value(gguf::ValueType::kString, merges,
                                              [](auto& out, const auto& merge) { put_string(out, merge); })},
        {"tokenizer.ggml.add_bos_token",
         scalar(gguf::ValueType::kBool, std::string(1, add_bos ? '\1' : '\0'))},
    };
    if (eos >= 0) {
      std::string payload;
      put(payload, static_cast<uint32_t>(eos));
      keys.emplace_back("tokenizer.ggml.eos_token_id", scalar(gguf::ValueType::kU32, payload));
    }
    std::erase_if(keys, [&](const auto& key) {
      return std::find(without.begin(), without.end(), key.first) != without.end();
    });
    std::string out = "GGUF";
    put<uint32_t>(out, 3);
    put<uint64_t>(out, 0);  // tensors
    put<uint64_t>(out, keys.size());
    for (const auto& [key, value] : keys) {
      put_string(out, key);
      out += value;
    }
    out.resize((out.size() + 31) / 32 * 32, '\0');
    return out;
  }

  std::string bytes_;
};

// Random text that visits every corner: ASCII, spaces, letters with marks, Hangul, astral characters,
// controls.
inline std::string random_unicode(uint32_t seed, std::size_t characters) {
  static constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x20, 0x7E},     {0x09, 0x0D},     {0x41, 0x5A},     {0x61, 0x7A},
      {0xA0, 0x24F},    {0x300, 0x36F},   {0x1100, 0x11FF}, {0x0900, 0x097F},
      {0x2000, 0x202F}, {0x3000, 0x30FF}, {0xAC00, 0xD7A3}, {0x1F600, 0x1F64F},
      {0x0600, 0x06FF}, {0x1E00, 0x1FFF}, {0xF900, 0xFAFF}, {0x1D100, 0x1D1FF}};
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    const auto [low, high] = kRanges[draw(std::size(kRanges))];
    utf8_append(text, low + static_cast<char32_t>(draw(high - low + 1)));
  }
  return text;
}

}  // namespace strata::tokenizer::tests
