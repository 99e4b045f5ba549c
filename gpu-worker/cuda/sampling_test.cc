// Tokens chosen on the device against model::Sampler.
#include "gpu-worker/cuda/sampling.h"

#include <limits>

#include "gpu-worker/cuda/dense_test_support.h"

namespace strata::gpu_worker::cuda::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Request {
  model::SamplingParams params = {};
  uint64_t position = 0;
  std::vector<int32_t> prompt = {}, generated = {};
  std::vector<uint32_t> mask = {};
};

std::vector<uint32_t> mask_of(uint32_t vocab, const std::vector<int32_t>& allowed) {
  std::vector<uint32_t> mask(model::mask_words(vocab));
  for (const int32_t id : allowed)
    mask[static_cast<uint32_t>(id) / 32] |= 1u << static_cast<uint32_t>(id) % 32;
  return mask;
}

std::vector<SampleResult> sample_on_device(const std::vector<float>& logits, uint32_t vocab,
                                           const std::vector<Request>& requests) {
  std::vector<LogitChange> changes;
  std::vector<SampleRow> rows;
  auto masks = PinnedBuffer<uint32_t>::create(requests.size() * model::mask_words(vocab));
  EXPECT_TRUE(masks.has_value());
  for (const Request& r : requests) {
    EXPECT_TRUE(sampled_on_device(r.params, vocab));
    rows.push_back(sample_row(r.params, r.position, r.prompt, r.generated, vocab, changes));
    if (r.mask.empty()) continue;
    rows.back().masked = 1;
    std::ranges::copy(r.mask, masks->data() + (rows.size() - 1) * model::mask_words(vocab));
  }
  const auto d_logits = on_device(logits);
  const auto d_rows = on_device(rows);
  const auto d_changes = on_device(changes);
  const auto scratch =
      device_zeros<std::byte>(sampling_scratch_bytes(static_cast<uint32_t>(rows.size()), vocab));
  auto results = PinnedBuffer<SampleResult>::create(rows.size());
  EXPECT_TRUE(results.has_value());
  sample({.logits = d_logits.data(),
          .rows = static_cast<uint32_t>(rows.size()),
          .vocab = vocab,
          .requests = d_rows.data(),
          .changes = d_changes.data(),
          .masks = masks->data(),
          .scratch = scratch.data(),
          .results = results->data()},
         nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(values_of(d_logits).size(), logits.size());
  return {results->span().begin(), results->span().end()};
}

void expect_same_tokens(const std::vector<float>& logits, uint32_t vocab,
                        const std::vector<Request>& requests) {
  const std::vector<SampleResult> results = sample_on_device(logits, vocab, requests);
  model::Sampler sampler(vocab);
  for (std::size_t row = 0; row < requests.size(); ++row) {
    SCOPED_TRACE(testing::Message() << "row " << row);
    const Request& r = requests[row];
    const model::SampledToken expected = sampler.sample(std::span(logits).subspan(row * vocab, vocab),
                                                        r.params, r.position, r.prompt, r.generated, r.mask);
    const model::SampledToken actual = sampled_token(results[row]);
    ASSERT_EQ(results[row].usable, 1u);
    ASSERT_EQ(actual.id, expected.id);
    EXPECT_NEAR(actual.logprob, expected.logprob, 1e-6 * std::max(1.0f, std::fabs(expected.logprob)));
    ASSERT_EQ(actual.top.size(), expected.top.size());
    for (std::size_t i = 0; i < expected.top.size(); ++i) {
      EXPECT_EQ(actual.top[i].first, expected.top[i].first);
      EXPECT_NEAR(actual.top[i].second, expected.top[i].second,
                  1e-6 * std::max(1.0f, std::fabs(expected.top[i].second)));
    }
  }
}

// Logits with many equal ones, over several chunks and a short last one.
std::vector<float> logits_with_ties(Generator& random, std::size_t count) {
  std::vector<float> logits = random_floats(random, count, 6.0f);
  for (float& logit : logits) logit = std::round(logit * 16.0f) / 16.0f;
  return logits;
}

TEST(SamplingTest, GreedyTakesTheLowestOfEqualIds) {
  constexpr uint32_t kVocab = 5000;
  Generator random(1);
  expect_same_tokens(logits_with_ties(random, kVocab * 3), kVocab,
                     std::vector<Request>(3, {.params = {.temperature = 0}}));
}

TEST(SamplingTest, DrawsTheSameTokens) {
  constexpr uint32_t kVocab = 5000;
  Generator random(2);
  std::vector<Request> requests;
  for (const uint32_t top_k : {1u, 2u, 20u, 40u, 500u, 1024u}) {
    for (const float top_p : {1.0f, 0.95f, 0.3f, 0.0f}) {
      for (const float min_p : {0.0f, 0.05f, 1.5f}) {
        requests.push_back({.params = {.temperature = 0.3f + 0.1f * static_cast<float>(requests.size() % 17),
                                       .top_k = top_k,
                                       .top_p = top_p,
                                       .min_p = min_p,
                                       .seed = random.next()},
                            .position = random.below(100000)});
      }
    }
  }
  expect_same_tokens(logits_with_ties(random, kVocab * requests.size()), kVocab, requests);
}

TEST(SamplingTest, PenaltiesAndBias) {
  constexpr uint32_t kVocab = 3000;
  Generator random(3);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 24; ++i) {
    Request r{.params = {.temperature = i % 3 == 0 ? 0.0f : 0.9f,
                         .top_k = 50,
                         .repetition_penalty = i % 2 == 0 ? 1.3f : 1.0f,
                         .presence_penalty = i % 4 < 2 ? 0.4f : 0.0f,
                         .frequency_penalty = i % 5 == 0 ? 0.7f : 0.0f,
                         .penalty_last_n = i % 6 == 0 ? 0u : 20u,
                         .seed = i,
                         .logit_bias =
                             {{7, 5.0f}, {2999, i % 7 == 0 ? -kInfinity : -3.0f}, {-1, 9.0f}, {3000, 9.0f}}},
              .position = i};
    for (uint32_t n = 0; n < 30; ++n) r.prompt.push_back(static_cast<int32_t>(random.below(kVocab)));
    for (uint32_t n = 0; n < i; ++n) r.generated.push_back(static_cast<int32_t>(random.below(40)));
    requests.push_back(std::move(r));
  }
  std::vector<float> logits = logits_with_ties(random, kVocab * requests.size());
  for (std::size_t row = 0; row < requests.size(); ++row) {
    for (uint32_t token = 0; token < 40; ++token)
      logits[row * kVocab + token] += 4.0f;  // what penalties touch matters
  }
  expect_same_tokens(logits, kVocab, requests);
}

TEST(SamplingTest, ABiasThatLeavesNothingOrInfinity) {
  std::vector<std::pair<int32_t, float>> all, one;
  for (int32_t token = 0; token < 8; ++token) all.emplace_back(token, -kInfinity);
  one = {{5, kInfinity}};
  Generator random(4);
  expect_same_tokens(
      random_floats(random, 16), 8,
      {{.params = {.top_k = 3, .logit_bias = all}}, {.params = {.top_k = 3, .logit_bias = one}}});
}

TEST(SamplingTest, LogProbabilities) {
  constexpr uint32_t kVocab = 5000;
  Generator random(5);
  expect_same_tokens(
      logits_with_ties(random, kVocab * 3), kVocab,
      {{.params = {.temperature = 0, .logprobs = true, .top_logprobs = 20}},
       {.params = {.top_k = 20, .logit_bias = {{3, 50.0f}}, .logprobs = true, .top_logprobs = 3}},
       {.params = {.temperature = 0, .logprobs = true}}});
  expect_same_tokens(random_floats(random, 12), 12,
                     {{.params = {.temperature = 0, .logprobs = true, .top_logprobs = 20}}});
}

TEST(SamplingTest, ChoosesOnlyWhatTheMaskAllows) {
  Generator random(7);
  for (const uint32_t vocab : {1u, 31u, 33u, 2048u, 5000u}) {
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 40; ++i) {
      std::vector<int32_t> allowed = {static_cast<int32_t>(random.below(vocab))};
      const uint32_t more = i % 4 == 0 ? 0 : i % 4 == 1 ? 3 : vocab / 2;
      for (uint32_t n = 0; n < more; ++n) allowed.push_back(static_cast<int32_t>(random.below(vocab)));
      Request r;  // member by member: a g++ 12 takes what a braced one owns for uninitialized
      r.params.temperature = i % 3 == 0 || vocab <= 20 ? 0.0f : 0.9f;
      r.params.top_k = i % 2 == 0 ? 5u : 20u;
      r.params.top_p = i % 5 == 0 ? 0.5f : 1.0f;
      r.params.min_p = i % 7 == 0 ? 0.1f : 0.0f;
      r.params.repetition_penalty = i % 2 == 0 ? 1.4f : 1.0f;
      r.params.frequency_penalty = i % 6 == 0 ? 0.5f : 0.0f;
      r.params.seed = i;
      r.params.logit_bias.emplace_back(static_cast<int32_t>(vocab / 2), i % 3 == 0 ? 50.0f : -2.0f);
      r.params.logprobs = i % 8 == 0;
      r.params.top_logprobs = 5;
      r.position = i;
      r.prompt = {0};
      r.generated = {allowed[0]};
      if (i % 9 != 8) r.mask = mask_of(vocab, allowed);  // rows without one in between
      requests.push_back(std::move(r));
    }
    SCOPED_TRACE(vocab);
    const std::vector<float> logits = logits_with_ties(random, vocab * requests.size());
    if (vocab > 1) {
      std::vector<float> usable = logits;  // not all equal
      for (std::size_t row = 0; row < requests.size(); ++row) usable[row * vocab] += 0.5f;
      expect_same_tokens(usable, vocab, requests);
    } else {
      expect_same_tokens(logits, vocab, requests);
    }
  }
}

TEST(SamplingTest, AMaskIsStrongerThanABias) {
  std::vector<std::pair<int32_t, float>> all;
  for (int32_t token = 0; token < 3000; ++token) all.emplace_back(token, -kInfinity);
  Generator random(8);
  const std::vector<uint32_t> mask = mask_of(3000, {2300, 2999});
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 3; ++i) {
    Request& r = requests.emplace_back();
    r.params.temperature = i == 0 ? 0.0f : 1.0f;
    r.params.top_k = 3;
    r.params.logit_bias = i < 2 ? all : std::vector<std::pair<int32_t, float>>{{7, kInfinity}};
    r.mask = mask;
  }
  const std::vector<float> logits = random_floats(random, 3000 * requests.size());
  expect_same_tokens(logits, 3000, requests);
  EXPECT_EQ(sample_on_device(logits, 3000, requests)[0].id, 2300) << "the first that is allowed";
}

TEST(SamplingTest, LogitsThatAreOfNoUseAreReported) {
  constexpr uint32_t kVocab = 2500;
  Generator random(6);
  std::vector<float> logits = random_floats(random, kVocab * 5);
  logits[2400] = kNan;
  logits[kVocab + 3] = kInfinity;
  logits[2 * kVocab + 2499] = -kInfinity;
  std::fill_n(logits.begin() + 3 * kVocab, kVocab, 2.0f);
  const auto results =
      sample_on_device(logits, kVocab, std::vector<Request>(5, {.params = {.top_k = 20, .logprobs = true}}));
  for (std::size_t row = 0; row < 5; ++row) EXPECT_EQ(results[row].usable, row == 4 ? 1u : 0u) << row;
}

TEST(SamplingTest, SaysWhatItCannotDo) {
  EXPECT_FALSE(sampled_on_device({.top_k = 0}, 1000));
  EXPECT_FALSE(sampled_on_device({.top_k = 1000}, 1000));
  EXPECT_FALSE(sampled_on_device({.top_k = kSampleTopKMax + 1}, 5000));
  EXPECT_FALSE(sampled_on_device({.top_k = 5, .logprobs = true, .top_logprobs = 21}, 5000));
  EXPECT_FALSE(sampled_on_device({.top_k = 5, .logit_bias = {{1, 1.0f}, {2, 1.0f}, {1, 2.0f}}}, 5000));
  EXPECT_TRUE(sampled_on_device({.top_k = kSampleTopKMax}, 5000));
  EXPECT_TRUE(sampled_on_device({.temperature = 0}, 5));
}

}  // namespace
}  // namespace strata::gpu_worker::cuda::tests
