// The demo model against its goldens: float32 logits of another implementation over the same file's
// dequantized weights.
#include <algorithm>
#include <cstring>

#include "services/model/golden_fixture.h"

namespace strata::model {
namespace {

using golden::Runner;
using quant::Numerics;

constexpr double kLogitTolerance = 1e-3;
constexpr double kMeanDivergenceMax = 0.02;  // of the default numerics, over the stored ids
constexpr double kEqualShareMin =
    0.95;  // positions whose best token must be the same under the default numerics

struct Prompt {
  std::string name;
  std::vector<int32_t> tokens, greedy;
};

// Per position: the largest logits and the logarithm of the sum over all.
struct Record {
  int32_t token;
  float logsumexp;
  std::vector<int32_t> ids;
  std::vector<float> logits;
};

std::vector<Record> read_records(const std::filesystem::path& path, std::size_t top) {
  const std::string bytes = tests::read_text(path);
  const std::size_t record_bytes = 8 + 8 * top;
  EXPECT_EQ(bytes.size() % record_bytes, 0u) << path;
  std::vector<Record> records(bytes.size() / record_bytes);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const char* at = bytes.data() + i * record_bytes;
    records[i].ids.resize(top);
    records[i].logits.resize(top);
    std::memcpy(&records[i].token, at, 4);
    std::memcpy(&records[i].logsumexp, at + 4, 4);
    std::memcpy(records[i].ids.data(), at + 8, 4 * top);
    std::memcpy(records[i].logits.data(), at + 8 + 4 * top, 4 * top);
  }
  return records;
}

double log_sum_exp(std::span<const float> logits) {
  const double largest = logits[golden::arg_max(logits)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

class DemoModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { weights_ = golden::load(tests::models_golden_model()); }
  static void TearDownTestSuite() { weights_.reset(); }

  void SetUp() override {
    ASSERT_NE(weights_, nullptr);
    top_ = json_size("top");
    for (const auto& prompt : index_.at("prompts").as_array()) {
      prompts_.push_back(
          {.name = std::string(prompt.at("name").as_string()),
           .tokens = boost::json::value_to<std::vector<int32_t>>(prompt.at("tokens")),
           .greedy = boost::json::value_to<std::vector<int32_t>>(prompt.at("greedy_float32"))});
    }
  }

  std::size_t json_size(const char* key) const { return static_cast<std::size_t>(index_.at(key).as_int64()); }
  std::vector<Record> records(const Prompt& prompt) const {
    return read_records(folder_ / (prompt.name + ".logits.bin"), top_);
  }
  std::span<const float> row(std::span<const float> logits, std::size_t position) const {
    return logits.subspan(position * weights_->config.vocab, weights_->config.vocab);
  }

  static std::shared_ptr<const ModelWeights> weights_;
  const std::filesystem::path folder_ = tests::models_golden_folder();
  const boost::json::value index_ = golden::read_index(folder_);
  std::size_t top_ = 0;
  std::vector<Prompt> prompts_;
};
std::shared_ptr<const ModelWeights> DemoModelTest::weights_;

TEST_F(DemoModelTest, ExactNumericsGiveTheLogitsExpertsAndContinuation) {
  const ModelConfig& config = weights_->config;
  for (const Prompt& prompt : prompts_) {
    SCOPED_TRACE(prompt.name);
    std::vector<uint8_t> seen(prompt.tokens.size() * config.layers * config.experts_used);
    ForwardObserver observer;
    observer.router = [&](uint32_t layer, uint32_t tokens, const uint16_t* ids, const float*) {
      if (tokens != prompt.tokens.size()) return;  // the continuation
      for (uint32_t t = 0; t < tokens; ++t) {
        for (uint32_t i = 0; i < config.experts_used; ++i) {
          seen[(std::size_t{t} * config.layers + layer) * config.experts_used + i] =
              static_cast<uint8_t>(ids[t * config.experts_used + i]);
        }
      }
    };
    const auto capacity = static_cast<uint32_t>(prompt.tokens.size() + prompt.greedy.size());
    Runner runner(*weights_, Numerics::kExact, capacity, static_cast<uint32_t>(prompt.tokens.size()));
    runner.forward().observe(observer);
    auto logits = runner.run(prompt.tokens);

    double difference = 0;
    const auto expected = records(prompt);
    ASSERT_EQ(expected.size(), prompt.tokens.size());
    for (std::size_t t = 0; t < expected.size(); ++t) {
      for (std::size_t i = 0; i < top_; ++i) {
        const double found = row(logits, t)[static_cast<std::size_t>(expected[t].ids[i])];
        difference = std::max(difference, std::fabs(found - static_cast<double>(expected[t].logits[i])));
      }
      EXPECT_EQ(golden::arg_max(row(logits, t)), static_cast<std::size_t>(expected[t].ids[0]))
          << "position " << t;
      EXPECT_NEAR(log_sum_exp(row(logits, t)), expected[t].logsumexp, kLogitTolerance) << "position " << t;
    }
    EXPECT_LE(difference, kLogitTolerance);

    // Near a tie of the router another order of summation may turn a choice: one pair of neighbours, not
    // more.
    const auto experts = tests::read_array<uint8_t>(folder_ / (prompt.name + ".experts.bin"));
    ASSERT_EQ(experts.size(), seen.size());
    std::size_t other_experts = 0;
    for (std::size_t i = 0; i < experts.size(); ++i) other_experts += experts[i] != seen[i];
    EXPECT_LE(other_experts, 2u);
    std::printf("%-6s exact: %zu positions, logits within %.2e, %zu of %zu experts differ\n",
                prompt.name.c_str(), expected.size(), difference, other_experts, experts.size());

    std::vector<int32_t> greedy;
    for (std::size_t last = prompt.tokens.size() - 1; greedy.size() < prompt.greedy.size(); last = 0) {
      greedy.push_back(static_cast<int32_t>(golden::arg_max(row(logits, last))));
      if (greedy.size() < prompt.greedy.size()) logits = runner.run({&greedy.back(), 1});
    }
    EXPECT_EQ(greedy, prompt.greedy);
  }
}

TEST_F(DemoModelTest, DefaultNumericsStayCloseToTheFloat32Model) {
  for (const Prompt& prompt : prompts_) {
    SCOPED_TRACE(prompt.name);
    const auto rows = static_cast<uint32_t>(prompt.tokens.size());
    Runner runner(*weights_, Numerics::kReproducible, rows, rows);
    const auto logits = runner.run(prompt.tokens);
    const auto expected = records(prompt);
    double divergence = 0, worst = 0;
    std::size_t equal = 0;
    for (std::size_t t = 0; t < rows; ++t) {
      const auto found = row(logits, t);
      const double log_sum = log_sum_exp(found);
      double here = 0;
      for (std::size_t i = 0; i < top_; ++i) {
        const double log_p =
            static_cast<double>(expected[t].logits[i]) - static_cast<double>(expected[t].logsumexp);
        const double log_q =
            static_cast<double>(found[static_cast<std::size_t>(expected[t].ids[i])]) - log_sum;
        here += std::exp(log_p) * (log_p - log_q);
      }
      divergence += here;
      worst = std::max(worst, here);
      equal += golden::arg_max(found) == static_cast<std::size_t>(expected[t].ids[0]);
    }
    divergence /= rows;
    const double share = static_cast<double>(equal) / rows;
    std::printf("%-6s reproducible: best token equal at %.3f of %u positions, KL mean %.5f, largest %.4f\n",
                prompt.name.c_str(), share, rows, divergence, worst);
    EXPECT_GE(share, kEqualShareMin);
    EXPECT_LE(divergence, kMeanDivergenceMax);
  }
}

TEST_F(DemoModelTest, AnyCutOfTheLongPromptGivesTheSameBits) {
  const auto longest = std::max_element(prompts_.begin(), prompts_.end(), [](const auto& a, const auto& b) {
    return a.tokens.size() < b.tokens.size();
  });
  const auto rows = static_cast<uint32_t>(longest->tokens.size());
  Runner whole(*weights_, Numerics::kReproducible, rows, rows);
  const auto expected = whole.run(longest->tokens);
  const std::vector<std::size_t> sizes = {100, 1, 1, 1, 255, 2, 130};
  Runner cut(*weights_, Numerics::kReproducible, rows, rows);
  EXPECT_EQ(cut.run_cut(longest->tokens, sizes), expected);
}

}  // namespace
}  // namespace strata::model
