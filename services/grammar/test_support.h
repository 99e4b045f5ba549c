#pragma once
// Small vocabularies and texts for the tests of this folder.

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/grammar/grammar.h"
#include "services/grammar/matcher.h"

namespace strata::grammar {

// Token i is texts[i]; "</s>" is special and ends the generation, other <...> are special.
inline std::shared_ptr<const Vocabulary> vocabulary_of(const std::vector<std::string>& texts) {
  std::vector<VocabularyToken> tokens;
  std::vector<int32_t> ends;
  for (const std::string& text : texts) {
    const bool special = text.size() > 2 && text.front() == '<' && text.back() == '>';
    if (text == "</s>") ends.push_back(static_cast<int32_t>(tokens.size()));
    tokens.push_back({text, special ? VocabularyToken::Kind::kSpecial : VocabularyToken::Kind::kOrdinary});
  }
  auto result = Vocabulary::create(std::move(tokens), std::move(ends));
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return *result;
}

// Token b is the byte b, token 256 ends the generation.
inline std::shared_ptr<const Vocabulary> byte_vocabulary() {
  static const std::shared_ptr<const Vocabulary> kVocabulary = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back("</s>");
    return vocabulary_of(texts);
  }();
  return kVocabulary;
}

inline std::shared_ptr<const Grammar> compiled(
    const Rules& rules, std::shared_ptr<const Vocabulary> vocabulary = byte_vocabulary()) {
  auto grammar = Grammar::compile(rules, std::move(vocabulary));
  EXPECT_TRUE(grammar.has_value()) << grammar.error().message();
  return grammar ? *grammar : nullptr;
}

inline std::shared_ptr<const Grammar> compiled(
    std::string_view gbnf, std::shared_ptr<const Vocabulary> vocabulary = byte_vocabulary()) {
  auto grammar = Grammar::from_gbnf(gbnf, std::move(vocabulary));
  EXPECT_TRUE(grammar.has_value()) << grammar.error().message() << "\n" << gbnf;
  return grammar ? *grammar : nullptr;
}

enum class Match { kNo, kPrefix, kWhole };

// Reads the text byte by byte (byte_vocabulary).
inline Match match(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  for (const char c : text) {
    if (!matcher.accept(static_cast<uint8_t>(c))) return Match::kNo;
  }
  return matcher.is_complete() ? Match::kWhole : Match::kPrefix;
}

inline bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  return match(grammar, text) == Match::kWhole;
}
inline bool matches(std::string_view gbnf, std::string_view text) { return matches(compiled(gbnf), text); }

inline std::set<int32_t> allowed(Matcher& matcher) {
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().mask_words(), 0xDEADBEEF);
  matcher.fill_mask(mask);
  std::set<int32_t> tokens;
  for (std::size_t t = 0; t < mask.size() * 32; ++t) {
    if ((mask[t / 32] >> t % 32 & 1) != 0) tokens.insert(static_cast<int32_t>(t));
  }
  return tokens;
}

// What fill_mask must give, by trying every token.
inline std::set<int32_t> accepted_one_by_one(const Matcher& matcher) {
  std::set<int32_t> tokens;
  for (uint32_t t = 0; t < matcher.grammar().vocabulary().size(); ++t) {
    Matcher copy = matcher;
    if (copy.accept(static_cast<int32_t>(t))) tokens.insert(static_cast<int32_t>(t));
  }
  return tokens;
}

}  // namespace strata::grammar
