#include "services/synthetic/random_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/model/model_weights.h"
#include "services/synthetic/encoder.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::synthetic {
namespace {

using ::testing::HasSubstr;

Result<gguf::GgufFile> parse(const std::string& bytes) {
  return gguf::GgufFile::parse(std::as_bytes(std::span(bytes)), "random.gguf");
}

ModelTypes all_of(TensorType type) {
  return {.dense = type, .gate_up = type, .down = type, .embedding = type, .table = type, .head = type};
}

// Little to encode.
constexpr ModelShape kSmall{.layers = 1, .experts = 2, .table_rows = 8};

TEST(RandomModel, LoadsInEveryType) {
  for (const Encoder& encoder : encoders()) {
    const auto& info = gguf::tensor_type_info(encoder.type);
    SCOPED_TRACE(info.name);
    ModelTypes types = all_of(encoder.type);
    types.dense = TensorType::kQ8_0;  // most of the weights; searching code books is slow
    const auto bytes = make_model({.shape = kSmall, .types = types});
    ASSERT_TRUE(bytes) << bytes.error().message();
    const auto file = parse(*bytes);
    ASSERT_TRUE(file) << file.error().message();
    const auto weights = model::load_model(*file);
    ASSERT_TRUE(weights) << weights.error().message();
    EXPECT_EQ(weights->layers[0].moe.experts.down.type, encoder.type);
    EXPECT_EQ(weights->ngram.table.type, encoder.type);
  }
}

TEST(RandomModel, HasATokenizerThatReadsBackWhatItWrites) {
  ModelShape shape = kSmall;
  shape.vocabulary = 300;
  const auto bytes = make_model({.shape = shape});
  ASSERT_TRUE(bytes) << bytes.error().message();
  const auto file = parse(*bytes);
  ASSERT_TRUE(file) << file.error().message();
  const auto tokenizer = tokenizer::Tokenizer::from_gguf(*file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(tokenizer->vocab_size(), 300u);
  const std::string text = "In the \u017caglu.\n";
  std::string read;
  const auto ids = tokenizer->encode_untrusted(text);
  for (const auto id : ids) read += tokenizer->token_bytes(id);
  EXPECT_EQ(read, text);
  EXPECT_LT(ids.size(), text.size()) << "no merge was used";
  EXPECT_EQ(tokenizer->encode_trusted("<|im_end|>").size(), 1u);
}

TEST(RandomModel, DependsOnTheSeedAlone) {
  const auto first = make_model({.shape = kSmall, .seed = 1}),
             again = make_model({.shape = kSmall, .seed = 1}),
             other = make_model({.shape = kSmall, .seed = 2});
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
}

TEST(RandomModel, NamesTheTensorThatATypeDoesNotFit) {
  ModelShape shape = kSmall;
  shape.expert_width = 640;
  const auto model = make_model({.shape = shape, .types = all_of(TensorType::kQ4_K)});
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), HasSubstr("blk.0.ffn_down_exps: rows of 640 values"));
  ModelTypes types = all_of(TensorType::kQ4_K);
  types.down = TensorType::kIQ4_NL;
  EXPECT_TRUE(make_model({.shape = shape, .types = types}));
}

}  // namespace
}  // namespace strata::synthetic
