#include "services/model/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace strata::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t sample(const std::vector<float>& logits, const SamplingParams& params, uint64_t position = 0,
               const std::vector<int32_t>& prompt = {}, const std::vector<int32_t>& generated = {}) {
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  return sampler.sample(logits, params, position, prompt, generated).id;
}

// How often each token is drawn over many positions.
std::map<int32_t, int> histogram(const std::vector<float>& logits, const SamplingParams& params, int draws) {
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i)
    ++counts[sampler.sample(logits, params, static_cast<uint64_t>(i), {}, {}).id];
  return counts;
}

std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingParams& params) {
  std::set<int32_t> ids;
  for (const auto& [id, count] : histogram(logits, params, 2000)) ids.insert(id);
  return ids;
}

// Random123's known answers for philox4x32-10.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  struct Case {
    uint64_t seed, position, draw;
    std::vector<uint32_t> words;
  };
  const std::vector<Case> cases = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822,
       0x85a308d3243f6a88,
       0x0370734413198a2e,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) {
    const PhiloxWords words = philox(c.seed, c.position, c.draw);
    EXPECT_EQ(std::vector<uint32_t>(words.word, words.word + 4), c.words);
  }
}

TEST(SamplerTest, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  const SamplingParams greedy{.temperature = 0};
  EXPECT_EQ(sample({1, 3, 2}, greedy), 1);
  EXPECT_EQ(sample({1, 3, 3, 2}, greedy), 1);
  EXPECT_EQ(sample({-kInfinity, -5, kNan, -7}, greedy), 1);
  EXPECT_EQ(sample({kNan, kNan}, greedy), 0) << "a fault of the model must not become an invalid id";
}

TEST(SamplerTest, TopKOfOneIsGreedyAtAnyTemperature) {
  const SamplingParams params{.temperature = 5, .top_k = 1};
  EXPECT_EQ(drawn({0.1f, 0.3f, 0.3f, 0.2f}, params), std::set<int32_t>({1}));
}

TEST(SamplerTest, TopKKeepsTheLowerIdsAmongEquals) {
  EXPECT_EQ(drawn({1, 2, 1, 1, 2, 1}, {.top_k = 3}), std::set<int32_t>({0, 1, 4}));
}

TEST(SamplerTest, TopKBeyondTheVocabularyIsOff) {
  EXPECT_EQ(drawn({0, 0, 0}, {.top_k = 3}).size(), 3u);
  EXPECT_EQ(drawn({0, 0, 0}, {.top_k = 1000}).size(), 3u);
}

TEST(SamplerTest, TopPKeepsTheShortestFrontThatReachesIt) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.1f), std::log(0.3f)};
  EXPECT_EQ(drawn(logits, {.top_p = 0.45f}), std::set<int32_t>({1}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.75f}), std::set<int32_t>({1, 3}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.85f}), std::set<int32_t>({0, 1, 3}))
      << "of the two equal ones the lower id";
  EXPECT_EQ(drawn(logits, {.top_p = 0.0f}), std::set<int32_t>({1})) << "one token always stays";
  EXPECT_EQ(drawn(logits, {.top_k = 3, .top_p = 0.99f}), std::set<int32_t>({0, 1, 3}))
      << "of what top_k has left";
}

TEST(SamplerTest, TopPSortsAsFarAsItMustInALargeVocabulary) {
  std::vector<float> flat(5000, 0.0f);
  const auto ids = drawn(flat, {.top_p = 0.5f});
  EXPECT_GT(ids.size(), 1000u);
  EXPECT_GT(*ids.rbegin(), 2000);
  EXPECT_LT(*ids.rbegin(), 2500) << "of equal tokens the lower half";
}

TEST(SamplerTest, MinPDropsWhatIsFarBelowTheBest) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.29f), std::log(0.11f)};
  EXPECT_EQ(drawn(logits, {.min_p = 0.25f}), std::set<int32_t>({0, 1}));
  EXPECT_EQ(drawn(logits, {.min_p = 0.9f}), std::set<int32_t>({0}));
  EXPECT_EQ(drawn(logits, {.min_p = 1.0f}), std::set<int32_t>({0}));
}

TEST(SamplerTest, NeverDrawsForbiddenTokens) {
  EXPECT_EQ(drawn({0, -kInfinity, kNan, 0}, {}), std::set<int32_t>({0, 3}));
  EXPECT_EQ(drawn({0, 5, 0}, {.logit_bias = {{1, -kInfinity}}}), std::set<int32_t>({0, 2}));
}

TEST(SamplerTest, BiasAddsAndIgnoresIdsOutsideTheVocabulary) {
  const SamplingParams params{.temperature = 0, .logit_bias = {{2, 10.0f}, {-1, 100.0f}, {99, 100.0f}}};
  EXPECT_EQ(sample({1, 2, 0}, params), 2);
}

TEST(SamplerTest, RepetitionPenaltyLooksAtPromptAndAnswerWithinItsWindow) {
  SamplingParams params{.temperature = 0, .repetition_penalty = 2.0f};
  EXPECT_EQ(sample({3, 2, 0}, params, 0, {0}), 1) << "3 / 2 < 2";
  EXPECT_EQ(sample({3, 2, 0}, params, 0, {}, {0, 0}), 1) << "once, however often it was seen";
  EXPECT_EQ(sample({-2, -3, -9}, params, 0, {0}), 1) << "negative logits are multiplied";
  params.penalty_last_n = 2;
  EXPECT_EQ(sample({3, 2, 0}, params, 0, {0, 2}, {2}), 0) << "three tokens back, the window has two";
  params.penalty_last_n = 0;
  EXPECT_EQ(sample({3, 2, 0}, params, 0, {0, 2}, {2}), 1) << "0: the whole history";
}

TEST(SamplerTest, PresenceAndFrequencyCountGeneratedTokensOnly) {
  const SamplingParams presence{.temperature = 0, .presence_penalty = 1.5f};
  EXPECT_EQ(sample({3, 2, 0}, presence, 0, {0}), 0);
  EXPECT_EQ(sample({3, 2, 0}, presence, 0, {}, {0}), 1);
  const SamplingParams frequency{.temperature = 0, .frequency_penalty = 0.6f};
  EXPECT_EQ(sample({3, 2, 0}, frequency, 0, {}, {0}), 0);
  EXPECT_EQ(sample({3, 2, 0}, frequency, 0, {}, {0, 0}), 1);
}

TEST(SamplerTest, PenaltiesOfOneCallDoNotReachTheNext) {
  Sampler sampler(3);
  const std::vector<float> logits = {3, 2, 0};
  const std::vector<int32_t> seen = {0, 7, -1};
  const SamplingParams params{.temperature = 0, .repetition_penalty = 2.0f, .presence_penalty = 1.0f};
  EXPECT_EQ(sampler.sample(logits, params, 0, seen, seen).id, 1);
  EXPECT_EQ(sampler.sample(logits, params, 0, {}, {}).id, 0);
}

TEST(SamplerTest, TheDrawDependsOnSeedAndPositionAlone) {
  std::vector<float> logits(100);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 0.01f * static_cast<float>(i);
  SamplingParams params{.top_p = 0.9f, .seed = 1};
  Sampler fresh(100), used(100);
  used.sample(logits, {.temperature = 3}, 9, {}, {});
  std::set<int32_t> by_position, by_seed;
  for (uint64_t position = 0; position < 50; ++position) {
    const int32_t id = fresh.sample(logits, params, position, {}, {}).id;
    EXPECT_EQ(used.sample(logits, params, position, {}, {}).id, id);
    by_position.insert(id);
  }
  EXPECT_GT(by_position.size(), 20u);
  for (params.seed = 0; params.seed < 50; ++params.seed)
    by_seed.insert(fresh.sample(logits, params, 5, {}, {}).id);
  EXPECT_GT(by_seed.size(), 20u);
}

TEST(SamplerTest, DrawsFollowTheDistribution) {
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.1};
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  constexpr int kDraws = 20000;
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.top_k = 3, .top_p = 0.9999f}}) {
    auto counts = histogram(logits, params, kDraws);
    const double mass = params.top_k == 0 ? 1.0 : 0.9;
    for (std::size_t i = 0; i < (params.top_k == 0 ? 4u : 3u); ++i) {
      const double expected = kDraws * p[i] / mass;
      EXPECT_NEAR(counts[static_cast<int32_t>(i)], expected, 5 * std::sqrt(expected))
          << "token " << i;  // five standard deviations
    }
  }
}

TEST(SamplerTest, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = {0, 1};
  constexpr int kDraws = 20000;
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    const double expected = kDraws / (1 + std::exp(-1.0 / static_cast<double>(temperature)));
    EXPECT_NEAR(histogram(logits, {.temperature = temperature}, kDraws)[1], expected, 5 * std::sqrt(expected))
        << temperature;
  }
}

TEST(SamplerTest, ReportsLogProbabilitiesOfTheUnmodifiedLogits) {
  Sampler sampler(4);
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.2f), std::log(0.5f)};
  const SamplingParams params{
      .temperature = 0, .logit_bias = {{0, 100.0f}}, .logprobs = true, .top_logprobs = 3};
  const SampledToken token = sampler.sample(logits, params, 0, {}, {});
  EXPECT_EQ(token.id, 0);
  EXPECT_NEAR(token.logprob, std::log(0.1), 1e-5);
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].first, 3);
  EXPECT_NEAR(token.top[0].second, std::log(0.5), 1e-5);
  EXPECT_EQ(token.top[1].first, 1);
  EXPECT_EQ(token.top[2].first, 2);
  EXPECT_TRUE(sampler.sample(logits, {.temperature = 0, .logprobs = true}, 0, {}, {}).top.empty());
}

// The partial selection against a full sort.
TEST(SamplerTest, SelectsTheSameTokensAsAFullSort) {
  std::mt19937 random(7);
  std::vector<float> logits(3000);
  for (float& logit : logits) logit = static_cast<float>(random() % 512) * 0.25f;  // many equals
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  Sampler sampler(3000);
  const SampledToken token =
      sampler.sample(logits, {.temperature = 0, .logprobs = true, .top_logprobs = 100}, 0, {}, {});
  ASSERT_EQ(token.top.size(), 100u);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(token.top[i].first, order[i]) << i;
}

std::vector<uint32_t> mask_of(std::size_t vocab, const std::vector<int32_t>& allowed) {
  std::vector<uint32_t> mask(mask_words(static_cast<uint32_t>(vocab)));
  for (const int32_t id : allowed)
    mask[static_cast<uint32_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
  return mask;
}

// A mask is the same as logits of minus infinity, whatever else the request asks for.
TEST(SamplerTest, NeverChoosesAMaskedToken) {
  std::mt19937 random(11);
  const std::vector<SamplingParams> requests = {
      {.temperature = 0},
      {.temperature = 1.3f},
      {.temperature = 1.3f, .top_k = 5},
      {.temperature = 1.3f, .top_p = 0.5f},
      {.temperature = 1.3f, .min_p = 0.4f},
      {.temperature = 1.3f, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f},
      {.temperature = 0, .repetition_penalty = 1.5f, .presence_penalty = 1, .frequency_penalty = 1},
      {.temperature = 1,
       .top_k = 10,
       .repetition_penalty = 1.5f,
       .logit_bias = {{3, 50.0f}, {7, -kInfinity}}},
  };
  for (const uint32_t vocab : {1u, 31u, 32u, 33u, 500u}) {
    for (int round = 0; round < 40; ++round) {
      std::vector<float> logits(vocab);
      for (float& logit : logits) logit = static_cast<float>(random() % 64) * 0.125f;
      std::vector<int32_t> allowed = {static_cast<int32_t>(random() % vocab)};
      for (uint32_t i = 0; i < vocab / 4; ++i) allowed.push_back(static_cast<int32_t>(random() % vocab));
      std::vector<float> masked(vocab, -kInfinity);
      for (const int32_t id : allowed)
        masked[static_cast<std::size_t>(id)] = logits[static_cast<std::size_t>(id)];
      const std::vector<int32_t> prompt = {0, 5}, generated = {1, 1, 3};
      const std::vector<uint32_t> mask = mask_of(vocab, allowed);
      Sampler sampler(vocab);
      for (SamplingParams params : requests) {
        // Token 7 alone would leave nothing to choose from: a case of its own, below.
        if (!params.logit_bias.empty() && std::set<int32_t>(allowed.begin(), allowed.end()) == std::set{7})
          continue;
        params.seed = random();
        const auto position = static_cast<uint64_t>(round);
        const int32_t id = sampler.sample(logits, params, position, prompt, generated, mask).id;
        EXPECT_EQ(id, sampler.sample(masked, params, position, prompt, generated).id) << vocab;
        EXPECT_NE(std::find(allowed.begin(), allowed.end(), id), allowed.end()) << vocab << ": " << id;
      }
    }
  }
}

TEST(SamplerTest, AMaskOfAllTokensChangesNothing) {
  const std::vector<float> logits = {0.5f, 1.5f, -1, 1, 0};
  Sampler sampler(5);
  for (uint64_t position = 0; position < 200; ++position) {
    for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.top_k = 3, .top_p = 0.8f}}) {
      EXPECT_EQ(sampler.sample(logits, params, position, {}, {}, mask_of(5, {0, 1, 2, 3, 4})).id,
                sampler.sample(logits, params, position, {}, {}).id);
    }
  }
}

TEST(SamplerTest, AMaskIsStrongerThanABias) {
  const std::vector<float> logits = {1, 2, 3, 4};
  const std::vector<uint32_t> mask = mask_of(4, {1, 2});
  Sampler sampler(4);
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams forbidden{.temperature = temperature,
                                   .logit_bias = {{1, -kInfinity}, {2, -kInfinity}}};
    EXPECT_EQ(sampler.sample(logits, forbidden, 0, {}, {}, mask).id, 1) << "the first that the mask allows";
    const SamplingParams wanted{.temperature = temperature, .logit_bias = {{3, 1000.0f}, {1, 500.0f}}};
    EXPECT_EQ(sampler.sample(logits, wanted, 0, {}, {}, mask).id, 1);
  }
}

TEST(SamplerTest, LogProbabilitiesKnowOfNoMask) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.7f)};
  Sampler sampler(3);
  const SampledToken token = sampler.sample(logits, {.temperature = 0, .logprobs = true, .top_logprobs = 1},
                                            0, {}, {}, mask_of(3, {0}));
  EXPECT_EQ(token.id, 0);
  EXPECT_NEAR(token.logprob, std::log(0.1), 1e-5);
  ASSERT_EQ(token.top.size(), 1u);
  EXPECT_EQ(token.top[0].first, 2);
}

TEST(SamplerDeathTest, AMaskFitsTheVocabularyAndAllowsSomething) {
  Sampler sampler(40);
  const std::vector<float> logits(40, 1.0f);
  const std::vector<uint32_t> short_mask = {1}, empty_mask = {0, 0};
  EXPECT_DEATH(sampler.sample(logits, {}, 0, {}, {}, short_mask), "mask of 1 words for 40 tokens");
  EXPECT_DEATH(sampler.sample(logits, {}, 0, {}, {}, empty_mask), "allows no token");
}

}  // namespace
}  // namespace strata::model
