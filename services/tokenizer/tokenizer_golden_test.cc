// Ids and texts that the reference implementations gave for real vocabularies.

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "services/tokenizer/test_vocabulary.h"
#include "services/tokenizer/tokenizer.h"
#include "services/tokenizer/utf8.h"
#include "tests/support/test_data.h"

namespace strata::tokenizer {
namespace {

namespace json = boost::json;
using tests::random_unicode;

Tokenizer load(const std::filesystem::path& path) {
  auto file = gguf::GgufFile::open(path.string());
  EXPECT_TRUE(file.has_value()) << file.error().message();
  auto tokenizer = Tokenizer::from_gguf(*file);
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  return std::move(tokenizer).value();
}

std::vector<TokenId> ids_of(const json::value& list) { return json::value_to<std::vector<TokenId>>(list); }

TEST(TokenizerGoldenTest, GivesTheDemoModelsIds) {
  const Tokenizer tokenizer = load(strata::tests::models_golden_model());
  const json::value index =
      json::parse(strata::tests::read_text(strata::tests::models_golden_folder() / "index.json"));
  const json::array& prompts = index.at("prompts").as_array();
  ASSERT_FALSE(prompts.empty());
  for (const json::value& prompt : prompts) {
    const std::string text(prompt.at("text").as_string());
    EXPECT_EQ(tokenizer.encode_trusted(text), ids_of(prompt.at("tokens"))) << prompt.at("name");
    EXPECT_EQ(tokenizer.decode(ids_of(prompt.at("tokens"))), text);
  }
}

TEST(TokenizerGoldenTest, GivesTheTinyModelsIdsAndTexts) {
  const Tokenizer tokenizer = load(strata::tests::tiny_folder() / "trunk-f32.gguf");
  const json::value cases =
      json::parse(strata::tests::read_text(strata::tests::tiny_folder() / "tokenizer.json"));
  ASSERT_FALSE(cases.as_array().empty());
  for (const json::value& item : cases.as_array()) {
    const std::string text(item.at("text").as_string());
    EXPECT_EQ(tokenizer.encode_trusted(text), ids_of(item.at("ids"))) << text;
    EXPECT_EQ(tokenizer.decode(ids_of(item.at("ids"))), std::string(item.at("decoded").as_string()));
  }
}

TEST(TokenizerGoldenTest, StreamsEveryTokenAsValidUtf8) {
  for (const auto& path :
       {strata::tests::models_golden_model(), strata::tests::tiny_folder() / "trunk-f32.gguf"}) {
    const Tokenizer tokenizer = load(path);
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocab_size()); ++id) ids.push_back(id);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const auto more = tokenizer.encode_untrusted(random_unicode(seed, 100));
      ids.insert(ids.end(), more.begin(), more.end());
    }
    Detokenizer stream(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_EQ(utf8_valid_prefix(piece), piece.size()) << "token " << id;
      streamed += piece;
    }
    ASSERT_FALSE(stream.pending());
    EXPECT_EQ(streamed, tokenizer.decode(ids));
  }
}

TEST(TokenizerGoldenTest, EndsAnswersAtBothEndTokens) {
  const Tokenizer tokenizer = load(strata::tests::models_golden_model());
  EXPECT_TRUE(tokenizer.is_end_of_generation(tokenizer.find_token("<|im_end|>")));
  EXPECT_TRUE(tokenizer.is_end_of_generation(tokenizer.find_token("<|endoftext|>")));
}

}  // namespace
}  // namespace strata::tokenizer
