// The forward pass against the tiny model's goldens: every array of the cases that hold text.
#include <array>
#include <map>

#include "services/model/golden_fixture.h"

namespace strata::model {
namespace {

using golden::Runner;
using quant::Numerics;

constexpr double kLogitTolerance = 1e-3;  // demanded; seen: below 1e-4
constexpr double kInnerTolerance =
    1e-4;  // streams, states, weights: float32 rounding of other summation orders

// Everything the observer can see, in the form of the goldens.
struct Seen {
  std::map<uint32_t, std::vector<uint16_t>> ids;                  // layer -> (tokens, k)
  std::map<uint32_t, std::vector<float>> weights;                 // layer -> (tokens, k)
  std::map<uint32_t, std::vector<std::vector<uint32_t>>> blocks;  // layer -> per token
  std::map<uint32_t, std::vector<float>> streams;                 // layer -> (tokens, C, H)
  std::vector<std::vector<uint64_t>> ngram_rows;
  std::vector<float> ngram_out;  // (tokens, C, H)
};

ForwardObserver observer_of(Seen& seen, const ModelConfig& config) {
  ForwardObserver observer;
  observer.router = [&](uint32_t layer, uint32_t tokens, const uint16_t* ids, const float* weights) {
    const std::size_t count = std::size_t{tokens} * config.experts_used;
    seen.ids[layer].insert(seen.ids[layer].end(), ids, ids + count);
    seen.weights[layer].insert(seen.weights[layer].end(), weights, weights + count);
  };
  observer.blocks = [&](uint32_t layer, uint32_t, std::span<const uint32_t> blocks) {
    seen.blocks[layer].emplace_back(blocks.begin(), blocks.end());
  };
  observer.streams = [&](uint32_t layer, uint32_t tokens, const float* streams) {
    seen.streams[layer].insert(seen.streams[layer].end(), streams,
                               streams + std::size_t{tokens} * config.stream_dim());
  };
  observer.ngram_rows = [&](uint32_t, std::span<const uint64_t> rows) {
    seen.ngram_rows.emplace_back(rows.begin(), rows.end());
  };
  observer.ngram_out = [&](uint32_t tokens, const float* added) {
    seen.ngram_out.insert(seen.ngram_out.end(), added, added + std::size_t{tokens} * config.stream_dim());
  };
  return observer;
}

// The cases of the folder that hold text only: those with images come with embeddings.
std::vector<std::string> text_cases() {
  std::vector<std::string> names;
  if (!std::filesystem::exists(tests::tiny_folder() / "index.json")) return names;
  const auto index = golden::read_index(tests::tiny_folder());
  const auto& files = index.at("files").as_object();
  constexpr std::string_view kSuffix = ".tokens.bin";
  for (const auto& entry : files) {
    const std::string key = entry.key();
    if (!key.ends_with(kSuffix)) continue;
    const std::string name = key.substr(0, key.size() - kSuffix.size());
    if (!files.contains(name + ".embeds.bin")) names.push_back(name);
  }
  return names;
}

class TinyModelTest : public ::testing::TestWithParam<std::tuple<std::string, Numerics>> {
 protected:
  void SetUp() override {
    weights_ = golden::load(folder_ / golden::gguf_name(index_, "trunk"));
    ASSERT_NE(weights_, nullptr);
    tokens_ = golden::read<int32_t>(folder_, index_, name_ + ".tokens.bin").values;
    runner_ = std::make_unique<Runner>(*weights_, numerics_, tokens_.size(), tokens_.size());
    runner_->forward().observe(observer_of(seen_, weights_->config));
    logits_ = runner_->run(tokens_);
  }

  template <class T>
  golden::Array<T> read(const std::string& what) const {
    return golden::read<T>(folder_, index_, name_ + "." + what + ".bin");
  }
  bool has(const std::string& what) const {
    return index_.at("files").as_object().contains(name_ + "." + what + ".bin");
  }

  const std::filesystem::path folder_ = tests::tiny_folder();
  const boost::json::value index_ = golden::read_index(folder_);
  const std::string name_ = std::get<0>(GetParam());
  const Numerics numerics_ = std::get<1>(GetParam());
  std::shared_ptr<const ModelWeights> weights_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Runner> runner_;
  Seen seen_;
  std::vector<float> logits_;
};

TEST_P(TinyModelTest, GivesTheLogitsOfEveryPosition) {
  const auto expected = read<float>("logits");
  const uint32_t vocab = weights_->config.vocab;
  const double difference = golden::max_abs_difference(logits_, expected.values);
  RecordProperty("max_abs_difference", std::to_string(difference));
  std::printf("%s: logits within %.2e\n", name_.c_str(), difference);
  EXPECT_LE(difference, kLogitTolerance);
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    EXPECT_EQ(golden::arg_max(std::span(logits_).subspan(t * vocab, vocab)), golden::arg_max(expected.at(t)))
        << "token " << t;
  }
}

TEST_P(TinyModelTest, ChoosesTheSameExpertsWithTheSameWeights) {
  const auto ids = read<uint8_t>("router_ids");
  const auto weights = read<float>("router_weights");
  for (uint32_t layer = 0; layer < weights_->config.layers; ++layer) {
    const auto expected = ids.at(layer);
    ASSERT_EQ(seen_.ids[layer].size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), seen_.ids[layer].begin())) << "layer " << layer;
    EXPECT_LE(golden::max_abs_difference(seen_.weights[layer], weights.at(layer)), kInnerTolerance)
        << "layer " << layer;
  }
}

TEST_P(TinyModelTest, ChoosesTheSameBlocks) {
  const auto blocks = read<int16_t>("blocks");
  for (std::size_t i = 0; i < blocks.layers.size(); ++i) {
    const auto& seen = seen_.blocks[blocks.layers[i]];
    ASSERT_EQ(seen.size(), tokens_.size());
    for (std::size_t t = 0; t < tokens_.size(); ++t) {
      std::vector<uint32_t> expected;
      for (const int16_t block : blocks.at(i, t)) {
        if (block >= 0) expected.push_back(static_cast<uint32_t>(block));
      }
      EXPECT_EQ(seen[t], expected) << "layer " << blocks.layers[i] << ", token " << t;
    }
  }
}

TEST_P(TinyModelTest, HasTheSameStreamsAfterEveryLayer) {
  const auto hidden = read<float>("hidden");
  const std::size_t wide = weights_->config.stream_dim();
  for (std::size_t i = 0; i < hidden.positions.size(); ++i) {
    for (uint32_t layer = 0; layer < weights_->config.layers; ++layer) {
      const auto streams =
          std::span<const float>(seen_.streams[layer]).subspan(hidden.positions[i] * wide, wide);
      EXPECT_LE(golden::max_abs_difference(streams, hidden.at(i, layer)), kInnerTolerance)
          << "layer " << layer << ", token " << hidden.positions[i];
    }
  }
}

TEST_P(TinyModelTest, LooksUpTheSameNgramRowsAndAddsTheSame) {
  const auto rows = read<int32_t>("ngram_rows");
  ASSERT_EQ(seen_.ngram_rows.size(), tokens_.size());
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    const auto expected = rows.at(t);
    EXPECT_EQ(seen_.ngram_rows[t], std::vector<uint64_t>(expected.begin(), expected.end())) << "token " << t;
  }
  const auto added = read<float>("ngram_out");
  const std::size_t wide = weights_->config.stream_dim();
  for (std::size_t i = 0; i < added.positions.size(); ++i) {
    const auto seen = std::span<const float>(seen_.ngram_out).subspan(added.positions[i] * wide, wide);
    EXPECT_LE(golden::max_abs_difference(seen, added.at(i)), kInnerTolerance)
        << "token " << added.positions[i];
  }
}

TEST_P(TinyModelTest, EndsInTheSameState) {
  if (!has("gdn_state")) GTEST_SKIP() << "no state recorded for " << name_;
  const SequenceState& state = runner_->state();
  const auto s = read<float>("gdn_state");
  ASSERT_EQ(s.layers.size(), 1u);
  EXPECT_LE(golden::max_abs_difference(state.delta[s.layers[0]].s, s.values), kInnerTolerance);
  const auto conv = read<float>("gdn_conv");
  for (std::size_t i = 0; i < conv.layers.size(); ++i) {
    EXPECT_LE(golden::max_abs_difference(state.delta[conv.layers[i]].conv, conv.at(i)), kInnerTolerance)
        << "layer " << conv.layers[i];
  }
  EXPECT_LE(golden::max_abs_difference(state.ngram_conv, read<float>("ngram_conv").values), kInnerTolerance);
  EXPECT_EQ(state.ngram_context, read<int32_t>("ngram_context").values);

  const auto k = read<float>("k"), v = read<float>("v");
  const std::size_t width = std::size_t{weights_->config.kv_heads} * weights_->config.head_dim;
  for (std::size_t i = 0; i < k.positions.size(); ++i) {
    const AttentionState& attention = state.attention[k.layers[0]];
    const auto row = [&](const std::vector<float>& rows) {
      return std::span(rows).subspan(k.positions[i] * width, width);
    };
    EXPECT_LE(golden::max_abs_difference(row(attention.k), k.at(i)), kInnerTolerance)
        << "token " << k.positions[i];
    EXPECT_LE(golden::max_abs_difference(row(attention.v), v.at(i)), kInnerTolerance)
        << "token " << v.positions[i];
  }
}

// The state keeps raw indexer keys of the unfinished tail only, so it is looked at after every length modulo
// the block.
TEST_P(TinyModelTest, KeepsTheRawIndexerKeysOfTheTail) {
  if (!has("indexer_raw")) GTEST_SKIP() << "no indexer keys recorded for " << name_;
  const auto raw = read<float>("indexer_raw");
  const uint32_t layer = raw.layers[0], block = weights_->config.block_tokens[layer],
                 dim = weights_->config.indexer_dim;
  Runner alone(*weights_, numerics_, tokens_.size(), tokens_.size());
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    alone.run(std::span(tokens_).subspan(t, 1));
    const std::size_t tail = (t + 1) % block;
    for (std::size_t i = 0; i < tail; ++i) {
      const auto kept = std::span(alone.state().attention[layer].raw).subspan(i * dim, dim);
      ASSERT_LE(golden::max_abs_difference(kept, raw.at(t + 1 - tail + i)), kInnerTolerance)
          << "after token " << t;
    }
  }
}

TEST_P(TinyModelTest, GivesTheSameBitsForEveryCut) {
  const std::vector<std::vector<std::size_t>> cuts = {{37, 1, 3, 20, 35},
                                                      std::vector<std::size_t>(tokens_.size(), 1)};
  for (const auto& cut : cuts) {
    Runner other(*weights_, numerics_, tokens_.size(), tokens_.size());
    EXPECT_EQ(other.run_cut(tokens_, cut), logits_);
    EXPECT_EQ(other.state().ngram_context, runner_->state().ngram_context);
    EXPECT_EQ(other.state().ngram_conv, runner_->state().ngram_conv);
    for (uint32_t layer = 0; layer < weights_->config.layers; ++layer) {
      EXPECT_EQ(other.state().delta[layer].s, runner_->state().delta[layer].s) << "layer " << layer;
      EXPECT_EQ(other.state().delta[layer].conv, runner_->state().delta[layer].conv) << "layer " << layer;
      EXPECT_EQ(other.state().attention[layer].k, runner_->state().attention[layer].k) << "layer " << layer;
      EXPECT_EQ(other.state().attention[layer].pooled, runner_->state().attention[layer].pooled)
          << "layer " << layer;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TinyModelTest,
                         ::testing::Combine(::testing::ValuesIn(text_cases()),
                                            ::testing::Values(Numerics::kReproducible, Numerics::kExact)),
                         [](const auto& param_info) {
                           return std::get<0>(param_info.param) +
                                  (std::get<1>(param_info.param) == Numerics::kExact ? "Exact"
                                                                                     : "Reproducible");
                         });

// All types of the mixed file, two shards, the draft layer in between: only float32 activations can be judged
// on a model this small.
TEST(MixedModelTest, AgreesWithDequantizedWeightsInFloat32) {
  const auto folder = tests::tiny_folder();
  const auto index = golden::read_index(folder);
  const auto weights = golden::load(folder / golden::gguf_name(index, "-00001-of-"));
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->config.draft_layers, 1u);

  const auto tokens = golden::read<int32_t>(folder, index, "plain.tokens.bin").values;
  const auto expected = golden::read<float>(folder, index, "mixed.plain.logits.bin");
  const auto ids = golden::read<uint8_t>(folder, index, "mixed.plain.router_ids.bin");
  Runner runner(*weights, Numerics::kExact, tokens.size(), tokens.size());
  Seen seen;
  runner.forward().observe(observer_of(seen, weights->config));
  const auto logits = runner.run(tokens);
  const double difference = golden::max_abs_difference(logits, expected.values);
  std::printf("mixed: logits within %.2e\n", difference);
  EXPECT_LE(difference, kLogitTolerance);
  for (uint32_t layer = 0; layer < weights->config.layers; ++layer) {
    const auto wanted = ids.at(layer);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), seen.ids[layer].begin(), seen.ids[layer].end()))
        << "layer " << layer;
  }
}

}  // namespace
}  // namespace strata::model
