#include "services/grammar/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "services/gguf/gguf_file.h"
#include "services/grammar/limits.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

TEST(TokenTrie, HoldsEveryTokenUnderItsBytes) {
  const std::vector<std::string> texts = {"b", "abc", "a", "abd", "", "b", "bcd", "\xFF\x01"};
  std::vector<TokenTrie::Entry> entries;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) entries.push_back({texts[i], static_cast<int32_t>(i)});
  }
  const TokenTrie trie(entries);
  std::map<std::string, std::vector<int32_t>> found;
  std::string path;
  for (uint32_t node = 1; node < trie.node_count(); ++node) {
    ASSERT_LE(trie.depth(node), path.size() + 1);
    path.resize(trie.depth(node) - 1);
    path += static_cast<char>(trie.byte(node));
    for (const int32_t token : trie.tokens(node)) found[path].push_back(token);
    // Skipping a node skips what begins with it and nothing else.
    for (uint32_t below = node + 1; below < trie.end(node); ++below)
      EXPECT_GT(trie.depth(below), trie.depth(node));
    EXPECT_TRUE(trie.end(node) == trie.node_count() || trie.depth(trie.end(node)) <= trie.depth(node));
  }
  const std::map<std::string, std::vector<int32_t>> expected = {
      {"a", {2}}, {"abc", {1}}, {"abd", {3}}, {"b", {0, 5}}, {"bcd", {6}}, {"\xFF\x01", {7}}};
  EXPECT_EQ(found, expected);
}

TEST(Vocabulary, SpecialTokensHaveNoBytesAndAreFoundBySpelling) {
  const auto vocabulary = vocabulary_of({"a", "<tool_call>", "</s>", "b"});
  EXPECT_EQ(vocabulary->bytes(0), "a");
  EXPECT_EQ(vocabulary->bytes(1), "");
  EXPECT_EQ(vocabulary->bytes(-1), "");
  EXPECT_EQ(vocabulary->bytes(4), "");
  EXPECT_EQ(vocabulary->special("<tool_call>"), 1);
  EXPECT_EQ(vocabulary->special("a"), std::nullopt);
  EXPECT_TRUE(vocabulary->is_end_of_generation(2));
  EXPECT_FALSE(vocabulary->is_end_of_generation(1));
}

TEST(Vocabulary, TokensThatAreTooLongAreNeverAllowed) {
  const auto vocabulary =
      vocabulary_of({std::string(kTokenBytesMax, 'a'), std::string(kTokenBytesMax + 1, 'a'), "</s>"});
  EXPECT_EQ(vocabulary->bytes(0).size(), kTokenBytesMax);
  EXPECT_EQ(vocabulary->bytes(1), "");
  Matcher matcher(compiled("root ::= \"a\"*", vocabulary));
  EXPECT_EQ(allowed(matcher), (std::set<int32_t>{0, 2}));
}

TEST(Vocabulary, NeedsAnEndOfGenerationThatExists) {
  EXPECT_EQ(Vocabulary::create({{"a"}}, {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Vocabulary::create({{"a"}}, {1}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Vocabulary::create({{"a"}}, {-1}).error().code(), Code::kInvalidArgument);
}

TEST(Vocabulary, OfTheDemoModel) {
  const auto file = gguf::GgufFile::open(STRATA_SOURCE_DIR "/models/strata-demo.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto tokenizer = tokenizer::Tokenizer::from_gguf(*file);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  const auto vocabulary = Vocabulary::from_tokenizer(*tokenizer);
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message();
  EXPECT_EQ((*vocabulary)->size(), tokenizer->vocab_size());
  EXPECT_TRUE((*vocabulary)->special("<tool_call>").has_value());
  EXPECT_TRUE((*vocabulary)->is_end_of_generation(*(*vocabulary)->special("<|im_end|>")));
  uint32_t ordinary = 0;
  for (uint32_t id = 0; id < (*vocabulary)->size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (!(*vocabulary)->bytes(token).empty()) ++ordinary;
    EXPECT_FALSE(tokenizer->is_special(token) && !(*vocabulary)->bytes(token).empty());
  }
  EXPECT_GT(ordinary, 256U);
}

}  // namespace
}  // namespace strata::grammar
