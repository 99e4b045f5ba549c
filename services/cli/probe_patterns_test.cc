// Against a server that is a function: a word is a token, a message has four more, prompts are remembered
// whole, and a token that has to be read takes a millisecond.
#include "services/cli/probe_patterns.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

namespace strata::cli {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMessageTokens = 4;
const TokenRate kRate{.per_word = 1, .per_message = kMessageTokens};

class Server {
 public:
  Result<ProbeAnswer> ask(const ProbeRequest& request) {
    ++requests;
    if (requests == fail_at) return fail(Code::kUnavailable, "the engine went away");
    std::vector<std::string> prompt;
    for (const ProbeMessage& message : request.messages)
      prompt.push_back(message.role + ' ' + message.content);
    longest_tokens = std::max(longest_tokens, tokens(prompt, prompt.size()) + request.max_tokens);
    ProbeAnswer answer;
    answer.prompt_tokens = tokens(prompt, prompt.size());
    for (const auto& [known, count] : known_) {
      const auto same = std::ranges::mismatch(prompt, known).in1 - prompt.begin();
      answer.cached_tokens = std::max(answer.cached_tokens, tokens(prompt, static_cast<std::size_t>(same)));
    }
    answer.first_token_seconds = 1e-3 * static_cast<double>(answer.prompt_tokens - answer.cached_tokens);
    const uint32_t times = ++known_[prompt];
    answer.text = silent ? "" : "answer to " + prompt.back().substr(0, 12);
    if (forgetful && times > 1) answer.text += " or so";
    last = request;
    return answer;
  }
  ProbeAsk function() {
    return [this](const ProbeRequest& request) { return ask(request); };
  }

  uint32_t requests = 0;
  uint32_t fail_at = 0;         // the request that fails; 0: none
  bool forgetful = false;       // answers the same prompt otherwise the second time
  bool silent = false;          // says nothing
  uint64_t longest_tokens = 0;  // prompt and answer
  ProbeRequest last;

 private:
  static uint64_t tokens(const std::vector<std::string>& prompt, std::size_t messages) {
    uint64_t count = 0;
    for (std::size_t i = 0; i < messages; ++i)
      count += kMessageTokens + static_cast<uint64_t>(std::ranges::count(prompt[i], ' '));
    return count;
  }
  std::map<std::vector<std::string>, uint32_t> known_;
};

const ProbeSeries& series(const ProbeResult& result, std::string_view name) {
  const auto found = std::ranges::find(result.series, name, &ProbeSeries::name);
  if (found == result.series.end()) throw std::runtime_error("no series " + std::string(name));
  return *found;
}

std::vector<std::string> names(const ProbeResult& result) {
  std::vector<std::string> out;
  for (const ProbeSeries& each : result.series) out.push_back(each.name);
  return out;
}

std::vector<uint64_t> tokens_read(const ProbeSeries& series) {
  std::vector<uint64_t> out;
  for (const ProbeSample& sample : series.samples) out.push_back(sample.prompt_tokens - sample.cached_tokens);
  return out;
}

ProbePlan plan() {
  return {.conversations = 3, .tokens = 1000, .rounds = 2, .steps = 5, .answer_tokens = 8, .seed = 7};
}

TEST(ProbePatterns, AlternateComesBackToEachConversationAfterAllOthers) {
  Server server;
  const auto result = run_probe_pattern("alternate", plan(), kRate, server.function());
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_THAT(names(*result), ElementsAre("cold", "warm", "switched", "repeated"));
  EXPECT_EQ(series(*result, "cold").samples.size(), 3u);
  EXPECT_EQ(series(*result, "warm").samples.size(), 3u);
  EXPECT_EQ(series(*result, "switched").samples.size(), 6u);
  for (const ProbeSample& cold : series(*result, "cold").samples) {
    EXPECT_EQ(cold.cached_tokens, 0u) << "texts begin differently";
    EXPECT_NEAR(static_cast<double>(cold.prompt_tokens), 1000 + 20, 10);
  }
  // What was answered, 8 tokens with its message, and a question.
  EXPECT_THAT(tokens_read(series(*result, "switched")), Each(8u + 20u));
  EXPECT_THAT(tokens_read(series(*result, "repeated")), Each(0u));
  EXPECT_EQ(result->compared, 3u);
  EXPECT_EQ(result->identical, 3u);
}

TEST(ProbePatterns, AnotherAnswerToTheSameRequestIsNoticed) {
  Server server;
  server.forgetful = true;
  const auto result = run_probe_pattern("alternate", plan(), kRate, server.function());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->compared, 3u);
  EXPECT_EQ(result->identical, 0u);
}

TEST(ProbePatterns, AnEmptyAnswerIsNotSentBackEmpty) {
  Server server;
  server.silent = true;
  ASSERT_TRUE(run_probe_pattern("loop", plan(), kRate, server.function()));
  for (const ProbeMessage& message : server.last.messages) EXPECT_NE(message.content, "");
}

TEST(ProbePatterns, ALoopReadsLittlePerStep) {
  Server server;
  const auto result = run_probe_pattern("loop", plan(), kRate, server.function());
  ASSERT_TRUE(result);
  EXPECT_THAT(names(*result), ElementsAre("cold", "step"));
  EXPECT_EQ(series(*result, "step").samples.size(), 5u);
  EXPECT_THAT(tokens_read(series(*result, "step")), Each(8u + 50u));
}

TEST(ProbePatterns, ASharedSystemPromptIsReadOnce) {
  Server server;
  const auto result = run_probe_pattern("shared", plan(), kRate, server.function());
  ASSERT_TRUE(result);
  EXPECT_THAT(names(*result), ElementsAre("cold", "shared"));
  EXPECT_EQ(series(*result, "cold").samples.size(), 2u) << "a new system prompt each round";
  EXPECT_EQ(series(*result, "shared").samples.size(), 4u);
  EXPECT_THAT(tokens_read(series(*result, "cold")), Each(1000u + 20u));
  EXPECT_THAT(tokens_read(series(*result, "shared")), Each(20u));
}

TEST(ProbePatterns, AnEditedMessageIsTheOnlyNewOne) {
  Server server;
  const auto result = run_probe_pattern("edit", plan(), kRate, server.function());
  ASSERT_TRUE(result);
  EXPECT_THAT(names(*result), ElementsAre("cold", "edited"));
  EXPECT_EQ(series(*result, "edited").samples.size(), 6u);
  EXPECT_THAT(tokens_read(series(*result, "edited")), Each(50u));
}

TEST(ProbePatterns, CompactingKeepsTheSystemPrompt) {
  Server server;
  const auto result = run_probe_pattern("compact", plan(), kRate, server.function());
  ASSERT_TRUE(result);
  EXPECT_THAT(names(*result), ElementsAre("cold", "compacted"));
  for (const ProbeSample& sample : series(*result, "compacted").samples) {
    EXPECT_EQ(sample.cached_tokens, 500u);
    EXPECT_EQ(sample.prompt_tokens, 600u);
  }
}

TEST(ProbePatterns, TextsAreThoseOfTheSeed) {
  const auto last_text = [](uint64_t seed) {
    Server server;
    ProbePlan seeded = plan();
    seeded.seed = seed;
    EXPECT_TRUE(run_probe_pattern("edit", seeded, kRate, server.function()));
    return server.last.messages.back().content;
  };
  EXPECT_EQ(last_text(7), last_text(7));
  EXPECT_NE(last_text(7), last_text(8));
}

TEST(ProbePatterns, WhatDoesNotFitTheContextIsRefusedBeforeTheWork) {
  for (const std::string_view pattern : kProbePatterns) {
    Server fits;
    ASSERT_TRUE(run_probe_pattern(pattern, plan(), kRate, fits.function()));
    const uint64_t needed = probe_tokens_needed(pattern, plan(), kRate);
    EXPECT_GE(needed, fits.longest_tokens) << pattern;
    EXPECT_LE(needed, fits.longest_tokens + fits.longest_tokens / 10 + 50) << pattern << ": far too careful";
    Server server;
    ProbePlan tight = plan();
    tight.context_tokens = needed - 1;
    const auto refused = run_probe_pattern(pattern, tight, kRate, server.function());
    ASSERT_FALSE(refused) << pattern;
    EXPECT_EQ(refused.error().code(), Code::kOutOfRange);
    EXPECT_THAT(refused.error().message(), HasSubstr("lower --tokens"));
    EXPECT_EQ(server.requests, 0u);
    tight.context_tokens = needed;
    EXPECT_TRUE(run_probe_pattern(pattern, tight, kRate, server.function())) << pattern;
  }
}

TEST(ProbePatterns, TheServersErrorEndsThem) {
  for (const std::string_view pattern : kProbePatterns) {
    for (const uint32_t request : {1u, 2u}) {
      Server server;
      server.fail_at = request;
      const auto broken = run_probe_pattern(pattern, plan(), kRate, server.function());
      ASSERT_FALSE(broken) << pattern;
      EXPECT_EQ(broken.error().message(), "the engine went away");
      EXPECT_EQ(server.requests, request);
    }
  }
}

TEST(ProbeFiller, LengthsFollowTheServersCount) {
  const ProbeAsk ask = [](const ProbeRequest& request) -> Result<ProbeAnswer> {
    const auto spaces = std::ranges::count(request.messages.at(0).content, ' ');
    ProbeAnswer answer;
    answer.prompt_tokens = static_cast<uint64_t>(3 * (spaces + 1) + 10);
    return answer;
  };
  const auto rate = measure_token_rate(1, ask);
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->per_word, 3);
  EXPECT_DOUBLE_EQ(rate->per_message, 5);
  EXPECT_EQ(rate->words(305), 100u);
  EXPECT_EQ(rate->words(0), 1u);
}

TEST(ProbeFiller, AServerThatDoesNotCountIsNoticed) {
  const auto constant = [](const ProbeRequest&) -> Result<ProbeAnswer> {
    ProbeAnswer answer;
    answer.prompt_tokens = 9;
    return answer;
  };
  const auto rate = measure_token_rate(1, constant);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), Code::kDataLoss);
}

TEST(ProbeFiller, TextsOfTwoNumbersDifferFromTheFirstWord) {
  const std::string one = filler_text(1, 1, 30);
  EXPECT_EQ(std::ranges::count(one, ' '), 29);
  EXPECT_EQ(one, filler_text(1, 1, 30));
  const auto first_word = [](const std::string& text) { return text.substr(0, text.find(' ')); };
  EXPECT_NE(first_word(one), first_word(filler_text(1, 2, 30)));
  EXPECT_NE(first_word(one), first_word(filler_text(2, 1, 30)));
}

}  // namespace
}  // namespace strata::cli
