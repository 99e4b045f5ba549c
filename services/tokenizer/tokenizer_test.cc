#include "services/tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include <random>

#include "services/tokenizer/normalize.h"
#include "services/tokenizer/test_vocabulary.h"

namespace strata::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::random_unicode;
using tests::TestVocabulary;
using Ids = std::vector<TokenId>;

class TokenizerTest : public testing::Test {
 protected:
  TokenizerTest() {
    ab_ = vocabulary_.add_merge("a", "b");
    aa_ = vocabulary_.add_merge("a", "a");
    aaaa_ = vocabulary_.add_merge("aa", "aa");
    space_a_ = vocabulary_.add_merge("\xC4\xA0", "a");
    two_spaces_ = vocabulary_.add_merge("\xC4\xA0", "\xC4\xA0");
    end_ = vocabulary_.add("<|im_end|>", TokenType::kControl);
    think_ = vocabulary_.add("<think>", TokenType::kUserDefined);
    think_on_ = vocabulary_.add("<think>on", TokenType::kUserDefined);
    text_ = vocabulary_.add("<|endoftext|>", TokenType::kControl);
  }

  TestVocabulary vocabulary_;
  TokenId ab_, aa_, aaaa_, space_a_, two_spaces_, end_, think_, think_on_, text_;
};

TEST_F(TokenizerTest, MergesByRankAndLeftmostFirst) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_THAT(tokenizer.encode_untrusted("aab"), ElementsAre('a', ab_));
  EXPECT_THAT(tokenizer.encode_untrusted("aaa"), ElementsAre(aa_, 'a'));
  EXPECT_THAT(tokenizer.encode_untrusted("aaaaa"), ElementsAre(aaaa_, 'a'));
  EXPECT_THAT(tokenizer.encode_untrusted("x a"), ElementsAre('x', space_a_));
  EXPECT_THAT(tokenizer.encode_untrusted(""), ElementsAre());
}

TEST_F(TokenizerTest, RecognisesSpecialTokensInTrustedTextOnly) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_THAT(tokenizer.encode_trusted("a<|im_end|>b<think>on<think>"),
              ElementsAre('a', end_, 'b', think_on_, think_))
      << "the longest spelling wins";
  const std::string hostile = "<|im_end|><think>on<|endoftext|>";
  for (const TokenId id : tokenizer.encode_untrusted(hostile)) EXPECT_FALSE(tokenizer.is_special(id)) << id;
  EXPECT_EQ(tokenizer.decode(tokenizer.encode_untrusted(hostile)), hostile);
}

TEST_F(TokenizerTest, ASpellingWithOneByteOfTheRequestIsText) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  const std::string spelling = "<|im_end|>";
  for (std::size_t i = 0; i < spelling.size(); ++i) {
    MarkedText text(spelling.substr(0, i), Origin::kTemplate);
    text.append(spelling.substr(i, 1), Origin::kRequest);
    text.append(spelling.substr(i + 1), Origin::kTemplate);
    EXPECT_EQ(tokenizer.encode(text), tokenizer.encode_untrusted(spelling)) << "byte " << i;
  }
  MarkedText pieces("<|im", Origin::kTemplate);
  pieces.append("_end|>", Origin::kTemplate);
  EXPECT_THAT(tokenizer.encode(pieces), ElementsAre(end_)) << "all of it is the template's";
}

TEST_F(TokenizerTest, FallsBackToAShorterSpellingAtASeam) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  MarkedText text("<think>", Origin::kTemplate);
  text.append("on", Origin::kRequest);
  EXPECT_THAT(tokenizer.encode(text), ElementsAre(think_, 'o', 'n'));
}

TEST_F(TokenizerTest, MergesAndNormalisesAcrossSeams) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  MarkedText text("xa", Origin::kTemplate);
  text.append("b  ", Origin::kRequest);
  text.append(" a", Origin::kTemplate);
  EXPECT_EQ(tokenizer.encode(text), tokenizer.encode_untrusted("xab   a"));
  EXPECT_THAT(tokenizer.encode(text), ElementsAre('x', ab_, two_spaces_, space_a_));
  MarkedText accent("e", Origin::kTemplate);
  accent.append("\xCC\x81", Origin::kRequest);
  EXPECT_THAT(tokenizer.encode(accent), ElementsAre(0xC3, 0xA9));
}

TEST_F(TokenizerTest, SeamsNeverChangeTheTokensOfOrdinaryText) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::string text = random_unicode(seed, 40);
    std::mt19937 random(seed);
    MarkedText marked;
    for (std::size_t at = 0; at < text.size();) {  // also inside characters
      const std::size_t bytes = std::min<std::size_t>(1 + random() % 5, text.size() - at);
      marked.append(std::string_view(text).substr(at, bytes),
                    random() % 2 == 0 ? Origin::kTemplate : Origin::kRequest);
      at += bytes;
    }
    ASSERT_EQ(tokenizer.encode(marked), tokenizer.encode_untrusted(text)) << "seed " << seed;
  }
}

TEST_F(TokenizerTest, DecodingGivesTheNormalisedTextBack) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::string text = random_unicode(seed, 80);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode_untrusted(text)), to_nfc(text)) << "seed " << seed;
  }
}

TEST_F(TokenizerTest, NoTextOfSpecialSpellingsGivesASpecialToken) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  const std::string parts[] = {"<|im_end|>", "<think>", "on", "<|endoftext|>", "<|im", "_end|>", " ", "a",
                               "\n",         "<",       "|>"};
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < 12; ++i) text += parts[random() % std::size(parts)];
    for (const TokenId id : tokenizer.encode_untrusted(text)) ASSERT_FALSE(tokenizer.is_special(id)) << text;
  }
}

TEST_F(TokenizerTest, TakesInvalidUtf8ByteByByte) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_THAT(tokenizer.encode_untrusted("a\xFF\xE2\x82q\xC3"),
              ElementsAre('a', 0xFF, 0xE2, 0x82, 'q', 0xC3));
}

TEST_F(TokenizerTest, LongPiecesTakeBoundedWork) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_EQ(tokenizer.encode_untrusted(std::string(1'000'000, 'a')), Ids(250'000, aaaa_));
  EXPECT_EQ(tokenizer.encode_untrusted(std::string(200'000, ' ')), Ids(100'000, two_spaces_));
  EXPECT_EQ(tokenizer.encode_trusted(std::string(200'000, '<')), Ids(200'000, '<'));
}

TEST_F(TokenizerTest, AMergeResultThatIsNoTokenComesOutByteByByte) {
  vocabulary_.merges.push_back("x y");
  vocabulary_.merges.push_back("xy z");
  const TokenId xyz = vocabulary_.add("xyz", TokenType::kNormal);
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_THAT(tokenizer.encode_untrusted("xy"), ElementsAre('x', 'y'));
  EXPECT_THAT(tokenizer.encode_untrusted("xyz"), ElementsAre(xyz));
}

TEST_F(TokenizerTest, AMergeCannotArriveAtASpecialToken) {
  vocabulary_.merges.push_back("q r");
  const TokenId special = vocabulary_.add("qr", TokenType::kControl);
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_THAT(tokenizer.encode_untrusted("qr"), ElementsAre('q', 'r'));
  EXPECT_THAT(tokenizer.encode_trusted("qr"), ElementsAre(special));
}

TEST_F(TokenizerTest, DescribesItsTokens) {
  vocabulary_.eos = 'x';
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_EQ(tokenizer.vocab_size(), vocabulary_.tokens.size());
  EXPECT_EQ(tokenizer.token_bytes(space_a_), " a");
  EXPECT_EQ(tokenizer.token_bytes(end_), "<|im_end|>");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(100'000), "");
  EXPECT_EQ(tokenizer.token_type(end_), TokenType::kControl);
  EXPECT_EQ(tokenizer.token_type(think_), TokenType::kUserDefined);
  EXPECT_TRUE(tokenizer.is_special(think_));
  EXPECT_FALSE(tokenizer.is_special('a'));
  EXPECT_FALSE(tokenizer.is_special(100'000));
  EXPECT_EQ(tokenizer.find_token("<|im_end|>"), end_);
  EXPECT_EQ(tokenizer.find_token(" a"), space_a_);
  EXPECT_EQ(tokenizer.find_token("nothing"), -1);
  EXPECT_THAT(std::vector(tokenizer.end_of_generation().begin(), tokenizer.end_of_generation().end()),
              ElementsAre('x', end_, text_));
  EXPECT_TRUE(tokenizer.is_end_of_generation(text_));
  EXPECT_FALSE(tokenizer.is_end_of_generation(think_));
}

TEST_F(TokenizerTest, DecodingReplacesWhatIsNoUtf8) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  EXPECT_EQ(tokenizer.decode(Ids{'a', 0xE2, 0x82, 'b', 0xFF, 0xC3}),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_F(TokenizerTest, TheDetokenizerHoldsBackHalfCharacters) {
  const Tokenizer tokenizer = vocabulary_.load_or_fail();
  Detokenizer stream(tokenizer);
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_TRUE(stream.pending());
  EXPECT_EQ(stream.push(0xAC), "\xE2\x82\xAC");
  EXPECT_FALSE(stream.pending());
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(end_), "\xEF\xBF\xBD<|im_end|>") << "a character that can never be completed";
  EXPECT_EQ(stream.push(0xF0), "");
  stream.finish();
  EXPECT_EQ(stream.push('a'), "a") << "the incomplete one was dropped";
}

TEST_F(TokenizerTest, RefusesDamagedVocabulariesAndNamesTheKey) {
  const auto refuse = [](Result<Tokenizer> result, Code code, const std::string& words) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), code);
    EXPECT_THAT(result.error().message(), HasSubstr(words));
  };
  for (const std::string key : {"model", "pre", "tokens", "token_type", "merges"}) {
    refuse(vocabulary_.load({"tokenizer.ggml." + key}), Code::kNotFound, "tokenizer.ggml." + key);
  }
  auto changed = vocabulary_;
  changed.model = "llama";
  refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.model");
  changed = vocabulary_;
  changed.pre = "gpt-2";
  refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.pre");
  changed = vocabulary_;
  changed.types_instead = {1, 1};
  refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.token_type");
  changed.types_instead.assign(vocabulary_.tokens.size(), 7);
  refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.token_type[0]");
  for (const std::string merge : {"ab", " ab", "ab ", ""}) {
    changed = vocabulary_;
    changed.merges.push_back(merge);
    refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.merges[5]");
  }
  changed = vocabulary_;
  changed.eos = 100'000;
  refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.eos_token_id");
  changed = vocabulary_;
  changed.add_bos = true;
  refuse(changed.load(), Code::kInvalidArgument, "tokenizer.ggml.add_bos_token");
  changed = vocabulary_;
  changed.tokens[0x41].first = "gone";
  refuse(changed.load(), Code::kInvalidArgument, "0x41");
}

}  // namespace
}  // namespace strata::tokenizer
