// Configuration keys: a complete file of the family, then one key changed at a time.
#include "services/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "services/gguf/file_builder.h"
#include "services/model/sequence_state.h"

namespace strata::model {
namespace {

using gguf::FileBuilder;
using gguf::ValueType;
using ::testing::HasSubstr;

// Keys in the order they are written; a test replaces or removes some.
class Metadata {
 public:
  Metadata() {
    set_text("general.architecture", "qwen4exp");
    for (const auto& [name, value] :
         std::map<std::string, uint32_t>{{"block_count", 8},
                                         {"context_length", 4096},
                                         {"embedding_length", 64},
                                         {"vocab_size", 100},
                                         {"attention.head_count", 4},
                                         {"attention.head_count_kv", 2},
                                         {"attention.key_length", 32},
                                         {"attention.value_length", 32},
                                         {"attention.indexer.head_count", 2},
                                         {"attention.indexer.key_length", 16},
                                         {"attention.indexer.top_k", 16},
                                         {"rope.dimension_count", 16},
                                         {"expert_count", 8},
                                         {"expert_used_count", 2},
                                         {"expert_feed_forward_length", 32},
                                         {"expert_shared_feed_forward_length", 32},
                                         {"ssm.conv_kernel", 4},
                                         {"ssm.state_size", 16},
                                         {"ssm.group_count", 2},
                                         {"ssm.time_step_rank", 4},
                                         {"ssm.inner_size", 64},
                                         {"hyper_connection.count", 4},
                                         {"hyper_connection.low_rank", 8},
                                         {"ple.ngram_size", 3},
                                         {"ple.heads_per_ngram", 2},
                                         {"ple.conv_kernel", 4},
                                         {"ple.eos_token_id", 99},
                                         {"embedding_length_per_layer_input", 16}}) {
      set("qwen4exp." + name, value);
    }
    set_real("qwen4exp.attention.layer_norm_rms_epsilon", 1e-6f);
    set_real("qwen4exp.rope.freq_base", 1e7f);
    set_ints("qwen4exp.rope.dimension_sections", {3, 3, 2, 0});
    set_ints("qwen4exp.attention.compress_ratios", {0, 0, 0, 4, 0, 0, 0, 4});
    set_ints("qwen4exp.ple.layers", {1});
    set_longs("qwen4exp.ple.layer_multipliers", {23703573157769, 20109073645365, 8052911324071});
    set_longs("qwen4exp.ple.head_offsets", {0, 97, 198, 301});
    set_longs("qwen4exp.ple.head_vocab_sizes", {97, 101, 103, 107});
  }

  void set(const std::string& key, uint32_t value) {
    write(key, ValueType::kU32, FileBuilder::number(value));
  }
  void set_real(const std::string& key, float value) {
    write(key, ValueType::kF32, FileBuilder::number(value));
  }
  void set_text(const std::string& key, std::string_view value) {
    write(key, ValueType::kString, FileBuilder::text(value));
  }
  void set_ints(const std::string& key, const std::vector<int32_t>& values) {
    set_array(key, ValueType::kI32, values);
  }
  void set_longs(const std::string& key, const std::vector<uint64_t>& values) {
    set_array(key, ValueType::kU64, values);
  }
  void set_bools(const std::string& key, const std::vector<uint8_t>& values) {
    set_array(key, ValueType::kBool, values);
  }
  void remove(const std::string& key) { pairs_.erase(key); }

  // The parsed file; the bytes live as long as this object.
  gguf::GgufFile file() {
    FileBuilder builder;
    for (const auto& [key, pair] : pairs_) builder.key(key, pair.first, pair.second);
    bytes_ = builder.build();
    auto parsed = gguf::GgufFile::parse(gguf::bytes_of(bytes_), "model.gguf");
    EXPECT_TRUE(parsed) << parsed.error().message();
    return *parsed;
  }

  Result<ModelConfig> read() { return read_model_config(file()); }

 private:
  template <class T>
  void set_array(const std::string& key, ValueType element, const std::vector<T>& values) {
    std::string bytes =
        FileBuilder::number(static_cast<uint32_t>(element)) + FileBuilder::number<uint64_t>(values.size());
    for (const T value : values) bytes += FileBuilder::number(value);
    write(key, ValueType::kArray, bytes);
  }
  void write(const std::string& key, ValueType type, const std::string& bytes) {
    pairs_[key] = {type, bytes};
  }

  std::map<std::string, std::pair<ValueType, std::string>> pairs_;
  std::string bytes_;
};

ModelConfig read_valid(Metadata& metadata) {
  auto config = metadata.read();
  EXPECT_TRUE(config) << config.error().message();
  return config ? *config : ModelConfig();
}

TEST(ModelConfigTest, ReadsACompleteFile) {
  Metadata metadata;
  const ModelConfig config = read_valid(metadata);
  EXPECT_EQ(config.layers, 8u);
  EXPECT_EQ(config.draft_layers, 0u);
  EXPECT_EQ(config.vocab, 100u);
  EXPECT_EQ(config.streams, 4u);
  EXPECT_EQ(config.layer_kinds[3], LayerKind::kAttention)
      << "interval 4 where the file does not name the layers";
  EXPECT_EQ(config.layer_kinds[4], LayerKind::kRecurrent);
  EXPECT_EQ(config.block_tokens, (std::vector<uint32_t>{0, 0, 0, 4, 0, 0, 0, 4}));
  EXPECT_EQ(config.ngram_layer, 1);
  EXPECT_EQ(config.ngram_rows(), 4u);
  EXPECT_EQ(config.ngram_history(), 9u);
  EXPECT_EQ(config.ngram_multipliers[0], 23703573157769u);
  EXPECT_EQ(config.rope.factor, 1.0f);
}

TEST(ModelConfigTest, TakesTheVariantsThatFilesUse) {
  Metadata metadata;
  metadata.set("qwen4exp.block_count", 9);
  metadata.set("qwen4exp.nextn_predict_layers", 1);
  metadata.set_bools("qwen4exp.attention.recurrent_layers", {1, 1, 0, 1, 1, 1, 0, 1, 0});
  metadata.set_ints("qwen4exp.attention.compress_ratios", {0, 0, 4, 0, 0, 0, 0, 0, 0});
  metadata.set_ints("qwen4exp.attention.head_count_kv", {0, 0, 2, 0, 0, 0, 2, 0, 2});
  metadata.set_ints("qwen4exp.expert_feed_forward_length", {32, 32, 16, 32, 32, 32, 32, 32, 32});
  metadata.set_text("general.name", "Tiny");
  const ModelConfig config = read_valid(metadata);
  EXPECT_EQ(config.name, "Tiny");
  EXPECT_EQ(config.layers, 8u);
  EXPECT_EQ(config.draft_layers, 1u);
  EXPECT_EQ(config.kv_heads, 2u);
  EXPECT_EQ(config.expert_width, 32u);
  EXPECT_EQ(config.layer_kinds[2], LayerKind::kAttention);
  EXPECT_EQ(config.block_tokens[2], 4u);
  EXPECT_EQ(config.block_tokens[6], 0u) << "dense attention";
}

TEST(ModelConfigTest, AFileWithoutNgramLayerNeedsNoNgramKeys) {
  Metadata metadata;
  for (const char* key : {"layers", "ngram_size", "heads_per_ngram", "conv_kernel", "eos_token_id",
                          "layer_multipliers", "head_offsets", "head_vocab_sizes"}) {
    metadata.remove(std::string("qwen4exp.ple.") + key);
  }
  EXPECT_EQ(read_valid(metadata).ngram_layer, -1);
  metadata.set_ints("qwen4exp.ple.layers", {});
  EXPECT_EQ(read_valid(metadata).ngram_layer, -1);
}

TEST(ModelConfigTest, CountsTheTokensWhereNoKeyGivesTheVocabulary) {
  Metadata metadata;
  metadata.remove("qwen4exp.vocab_size");
  EXPECT_THAT(metadata.read().error().message(), HasSubstr("vocab_size"));
}

TEST(ModelConfigTest, ReadsYarn) {
  Metadata metadata;
  metadata.set_text("qwen4exp.rope.scaling.type", "yarn");
  metadata.set_real("qwen4exp.rope.scaling.factor", 4.0f);
  metadata.set("qwen4exp.rope.scaling.original_context_length", 1024);
  const ModelConfig config = read_valid(metadata);
  EXPECT_EQ(config.rope.factor, 4.0f);
  EXPECT_EQ(config.rope.original_context, 1024u);
  metadata.set_text("qwen4exp.rope.scaling.type", "linear");
  EXPECT_EQ(metadata.read().error().code(), Code::kUnimplemented);
}

TEST(ModelConfigTest, RefusesOtherArchitecturesByName) {
  Metadata metadata;
  for (const char* architecture : {"qwen35moe", "qwen3next", "llama"}) {
    metadata.set_text("general.architecture", architecture);
    const Status status = metadata.read().error();
    EXPECT_EQ(status.code(), Code::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr(architecture));
    EXPECT_THAT(status.message(), HasSubstr("model.gguf"));
  }
  metadata.set_text("general.architecture", "qwen4exp");
  metadata.set_text("general.type", "mmproj");
  EXPECT_THAT(metadata.read().error().message(), HasSubstr("mmproj"));
}

TEST(ModelConfigTest, EveryNeededKeyIsNamedWhenItIsMissing) {
  for (const char* key : {"block_count",
                          "context_length",
                          "embedding_length",
                          "attention.head_count",
                          "attention.head_count_kv",
                          "attention.key_length",
                          "attention.value_length",
                          "attention.layer_norm_rms_epsilon",
                          "attention.compress_ratios",
                          "attention.indexer.head_count",
                          "attention.indexer.key_length",
                          "attention.indexer.top_k",
                          "rope.dimension_count",
                          "rope.dimension_sections",
                          "rope.freq_base",
                          "expert_count",
                          "expert_used_count",
                          "expert_feed_forward_length",
                          "expert_shared_feed_forward_length",
                          "ssm.conv_kernel",
                          "ssm.state_size",
                          "ssm.group_count",
                          "ssm.time_step_rank",
                          "ssm.inner_size",
                          "hyper_connection.count",
                          "hyper_connection.low_rank",
                          "ple.ngram_size",
                          "ple.heads_per_ngram",
                          "ple.conv_kernel",
                          "ple.eos_token_id",
                          "ple.layer_multipliers",
                          "ple.head_offsets",
                          "ple.head_vocab_sizes",
                          "embedding_length_per_layer_input"}) {
    Metadata metadata;
    metadata.remove(std::string("qwen4exp.") + key);
    const auto config = metadata.read();
    ASSERT_FALSE(config) << key;
    EXPECT_THAT(config.error().message(), HasSubstr(std::string("qwen4exp.") + key));
  }
}

struct BadKey {
  std::string key;
  std::function<void(Metadata&)> change;
};

class BadConfigTest : public ::testing::TestWithParam<BadKey> {};

TEST_P(BadConfigTest, IsRefusedWithTheKey) {
  Metadata metadata;
  GetParam().change(metadata);
  const auto config = metadata.read();
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), HasSubstr("qwen4exp." + GetParam().key));
  EXPECT_THAT(config.error().message(), HasSubstr("model.gguf"));
}

BadKey bad(const std::string& key, uint32_t value) {
  return {key, [=](Metadata& metadata) { metadata.set("qwen4exp." + key, value); }};
}
BadKey bad_ints(const std::string& key, const std::vector<int32_t>& values) {
  return {key, [=](Metadata& metadata) { metadata.set_ints("qwen4exp." + key, values); }};
}
BadKey bad_longs(const std::string& key, const std::vector<uint64_t>& values) {
  return {key, [=](Metadata& metadata) { metadata.set_longs("qwen4exp." + key, values); }};
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BadConfigTest,
    ::testing::Values(bad("block_count", 0), bad("block_count", 1000), bad("nextn_predict_layers", 8),
                      bad("embedding_length", 0), bad("embedding_length_per_layer_input", 15),
                      bad("attention.head_count_kv", 3), bad_ints("attention.head_count_kv", {2, 4}),
                      bad("attention.value_length", 16), bad("rope.dimension_count", 15),
                      bad("rope.dimension_count", 64), bad_ints("rope.dimension_sections", {3, 3, 3}),
                      bad_ints("rope.dimension_sections", {8}), bad("attention.indexer.top_k", 18),
                      bad("attention.indexer.top_k", 2), bad("attention.indexer.top_k", 0),
                      bad_ints("attention.compress_ratios", {0, 0, 0, 4}),
                      bad_ints("attention.compress_ratios", {0, 0, 0, -4, 0, 0, 0, 4}),
                      bad("expert_used_count", 9), bad("expert_count", 2000), bad("ssm.inner_size", 65),
                      bad("ssm.conv_kernel", 33), bad("hyper_connection.count", 1),
                      bad("hyper_connection.count", 9), bad("ple.eos_token_id", 100),
                      bad("ple.ngram_size", 1), bad("ple.conv_kernel", 100), bad_ints("ple.layers", {3}),
                      bad_ints("ple.layers", {8}), bad_ints("ple.layers", {1, 2}),
                      bad_longs("ple.layer_multipliers", {1, 2}), bad_longs("ple.head_offsets", {1, 2, 3}),
                      bad_longs("ple.head_vocab_sizes", {97, 101, 103}),
                      bad_longs("ple.head_vocab_sizes", {97, 101, 103, 0}),
                      bad_longs("ple.head_offsets", {0, 97, 198, uint64_t{1} << 60})));

TEST(ModelConfigTest, ValueHeadsMustBeAMultipleOfKeyHeads) {
  Metadata metadata;
  metadata.set("qwen4exp.ssm.time_step_rank", 3);
  metadata.set("qwen4exp.ssm.inner_size", 48);
  EXPECT_THAT(metadata.read().error().message(), HasSubstr("qwen4exp.ssm.time_step_rank"));
}

TEST(ModelConfigTest, ReadsTheRecommendedSampling) {
  Metadata metadata;
  metadata.set_real("general.sampling.temp", 0.6f);
  metadata.set_ints("unrelated", {1});
  auto defaults = read_sampling_defaults(metadata.file());
  ASSERT_TRUE(defaults);
  EXPECT_TRUE(defaults->has_temperature);
  EXPECT_FLOAT_EQ(defaults->temperature, 0.6f);
  EXPECT_FALSE(defaults->has_top_k || defaults->has_top_p || defaults->has_min_p);
  EXPECT_EQ(defaults->top_k, 20u);
  metadata.set("general.sampling.top_k", 0);
  EXPECT_EQ(read_sampling_defaults(metadata.file())->top_k, 0u);
  metadata.set_real("general.sampling.top_p", 1.5f);
  EXPECT_THAT(read_sampling_defaults(metadata.file()).error().message(), HasSubstr("general.sampling.top_p"));
}

TEST(SequenceStateTest, NeedsTheBytesThatWerePredicted) {
  Metadata metadata;
  const ModelConfig config = read_valid(metadata);
  for (const uint32_t capacity : {1u, 3u, 4u, 1000u}) {
    EXPECT_EQ(SequenceState(config, capacity).bytes(), SequenceState::bytes_needed(config, capacity))
        << capacity;
  }
}

TEST(SequenceStateTest, BeginsWithTheCutTokenAndReturnsToItOnReset) {
  Metadata metadata;
  SequenceState state(read_valid(metadata), 8);
  EXPECT_EQ(state.ngram_context, (std::vector<int32_t>{99, 99}));
  state.position_ = 5;
  state.ngram_context = {1, 2};
  state.ngram_conv[0] = 1;
  state.delta[0].s[7] = 1;
  state.delta[0].conv[3] = 1;
  state.reset();
  EXPECT_EQ(state.position(), 0u);
  EXPECT_EQ(state.ngram_context, (std::vector<int32_t>{99, 99}));
  EXPECT_EQ(state.ngram_conv[0], 0.0f);
  EXPECT_EQ(state.delta[0].s[7], 0.0f);
  EXPECT_EQ(state.delta[0].conv[3], 0.0f);
}

}  // namespace
}  // namespace strata::model
