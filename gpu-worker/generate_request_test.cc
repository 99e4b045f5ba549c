#include "gpu-worker/generate_request.h"

#include <gtest/gtest.h>

#include <cmath>

namespace strata::gpu_worker {
namespace {

constexpr RequestLimits kLimits{.vocab = 100, .context_tokens = 10};

v1::GenerateRequest good() {
  v1::GenerateRequest request;
  request.set_request_id("r1");
  for (int32_t token : {5, 6, 99}) request.add_prompt_tokens(token);
  request.set_max_tokens(4);
  request.add_end_tokens(2);
  return request;
}

v1::Sampling& sampling_of(v1::GenerateRequest& request) {
  v1::Sampling& sampling = *request.mutable_sampling();
  sampling.set_temperature(0.5f);
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  return sampling;
}

// The code, and the field that the message begins with.
void expect_refused(const v1::GenerateRequest& request, Code code, const std::string& begins) {
  auto read = read_generate_request(request, kLimits);
  ASSERT_FALSE(read) << begins;
  EXPECT_EQ(read.error().code(), code) << read.error().message();
  EXPECT_EQ(read.error().message().substr(0, begins.size()), begins);
}

TEST(GenerateRequest, IsTakenAsItIs) {
  v1::GenerateRequest request = good();
  v1::Sampling& sampling = sampling_of(request);
  sampling.set_top_k(7);
  sampling.set_seed(11);
  sampling.set_logprobs(true);
  sampling.set_top_logprobs(3);
  v1::LogitBias& bias = *sampling.add_logit_bias();
  bias.set_token(4);
  bias.set_bias(-INFINITY);
  auto read = read_generate_request(request, kLimits);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->prompt, (std::vector<int32_t>{5, 6, 99}));
  EXPECT_EQ(read->max_tokens, 4u);
  EXPECT_EQ(read->end_tokens, std::vector<int32_t>{2});
  EXPECT_EQ(read->sampling.temperature, 0.5f);
  EXPECT_EQ(read->sampling.top_k, 7u);
  EXPECT_EQ(read->sampling.seed, 11u);
  EXPECT_EQ(read->sampling.top_logprobs, 3u);
  EXPECT_EQ(read->sampling.logit_bias.size(), 1u);
}

TEST(GenerateRequest, SaysWhatIsReusedAndWhatIsKept) {
  v1::GenerateRequest request = good();
  request.set_name_space("0123456789abcdef");
  request.set_parked_id("fedcba9876543210");
  request.set_parked_tokens(2);
  request.set_shared_prompt_tokens(2);
  const auto add = [&](uint32_t tokens, v1::SnapshotKind kind) {
    v1::Checkpoint& wish = *request.add_checkpoints();
    wish.set_prompt_tokens(tokens);
    wish.set_kind(kind);
  };
  add(1, v1::SNAPSHOT_KIND_ROOT);
  add(3, v1::SNAPSHOT_KIND_INTERVAL);
  auto read = read_generate_request(request, kLimits);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->name_space.bytes(), "0123456789abcdef");
  EXPECT_EQ(read->parked_id.bytes(), "fedcba9876543210");
  EXPECT_EQ(read->parked_tokens, 2u);
  EXPECT_EQ(read->shared_tokens, 2u);
  EXPECT_EQ(read->checkpoints, (std::vector<CheckpointWish>{{1, snapshot::SnapshotKind::kRoot},
                                                            {3, snapshot::SnapshotKind::kInterval}}));
  add(3, v1::SNAPSHOT_KIND_TURN);
  expect_refused(request, Code::kInvalidArgument, "checkpoints[2]: 3 tokens");
  request.clear_checkpoints();
  add(4, v1::SNAPSHOT_KIND_TURN);
  expect_refused(request, Code::kInvalidArgument, "checkpoints[0]: 4 tokens");
  request.clear_checkpoints();
  add(0, v1::SNAPSHOT_KIND_TURN);
  expect_refused(request, Code::kInvalidArgument, "checkpoints[0]: 0 tokens");
}

TEST(GenerateRequest, WithoutSamplingIsGreedy) {
  auto read = read_generate_request(good(), kLimits);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->sampling.temperature, 0);
}

TEST(GenerateRequest, NamesATokenThatDoesNotExist) {
  v1::GenerateRequest request = good();
  request.set_prompt_tokens(1, 100);
  expect_refused(request, Code::kInvalidArgument, "prompt_tokens[1]: token 100");
  request = good();
  request.add_generated_tokens(-1);
  expect_refused(request, Code::kInvalidArgument, "generated_tokens[0]: token -1");
  request = good();
  request.add_end_tokens(1 << 30);
  expect_refused(request, Code::kInvalidArgument, "end_tokens[1]");
}

TEST(GenerateRequest, SaysWhatTheAnswerIsConstrainedTo) {
  EXPECT_FALSE(read_generate_request(good(), kLimits)->constraint.any());
  v1::GenerateRequest request = good();
  request.mutable_constraint()->set_gbnf("root ::= \"a\"");
  request.mutable_constraint()->set_prompt_tokens(3);
  request.set_thinking_end(99);
  request.set_thinking_tokens_max(0);
  auto read = read_generate_request(request, kLimits);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_TRUE(read->constraint.any());
  EXPECT_EQ(read->constraint.gbnf, "root ::= \"a\"");
  EXPECT_EQ(read->constraint.prompt_tokens, 3u);
  EXPECT_EQ(read->constraint.thinking_end, 99);
  EXPECT_EQ(read->constraint.thinking_tokens_max, 0u);

  request.mutable_constraint()->set_prompt_tokens(4);
  expect_refused(request, Code::kInvalidArgument, "constraint.prompt_tokens: 4 of a prompt of 3 tokens");
  request.clear_constraint();
  EXPECT_TRUE(read_generate_request(request, kLimits)->constraint.any()) << "a budget alone";
  request.clear_thinking_tokens_max();
  EXPECT_FALSE(read_generate_request(request, kLimits)->constraint.any())
      << "nothing follows from the end alone";
  request.set_thinking_end(100);
  expect_refused(request, Code::kInvalidArgument, "thinking_end: token 100");
  request.clear_thinking_end();
  request.set_thinking_tokens_max(5);
  expect_refused(request, Code::kInvalidArgument, "thinking_tokens_max: needs thinking_end");
  request.set_thinking_end(99);
  request.set_thinking_begin(98);
  const auto own = read_generate_request(request, kLimits);
  ASSERT_TRUE(own) << own.error().message();
  EXPECT_EQ(own->constraint.thinking_begin, 98);
  request.set_thinking_begin(-1);
  expect_refused(request, Code::kInvalidArgument, "thinking_begin: token -1");
  request.set_thinking_begin(98);
  request.clear_thinking_tokens_max();
  expect_refused(request, Code::kInvalidArgument, "thinking_begin: needs thinking_tokens_max");
  request = good();
  request.mutable_constraint();
  expect_refused(request, Code::kInvalidArgument, "constraint.gbnf: is empty");
}

TEST(GenerateRequest, NeedsAPromptAndRoomForAnAnswer) {
  v1::GenerateRequest request = good();
  request.clear_prompt_tokens();
  expect_refused(request, Code::kInvalidArgument, "prompt_tokens: ");
  request = good();
  request.set_max_tokens(0);
  expect_refused(request, Code::kInvalidArgument, "max_tokens: ");
  request = good();
  while (request.prompt_tokens_size() < 10) request.add_prompt_tokens(1);
  expect_refused(request, Code::kOutOfRange,
                 "the prompt of 10 tokens leaves no room for an answer in the context of 10 tokens");
  request = good();
  while (request.generated_tokens_size() < 8) request.add_generated_tokens(1);
  expect_refused(request, Code::kOutOfRange,
                 "prompt and answer of 11 tokens do not fit the context of 10 tokens");
}

TEST(GenerateRequest, NamesASamplingFieldThatIsOutOfRange) {
  struct Case {
    const char* begins;
    void (*spoil)(v1::Sampling&);
  };
  for (const Case& each : {
           Case{"sampling.temperature", [](v1::Sampling& s) { s.set_temperature(-0.1f); }},
           Case{"sampling.temperature", [](v1::Sampling& s) { s.set_temperature(NAN); }},
           Case{"sampling.top_p", [](v1::Sampling& s) { s.set_top_p(0); }},
           Case{"sampling.top_p", [](v1::Sampling& s) { s.set_top_p(1.5f); }},
           Case{"sampling.min_p", [](v1::Sampling& s) { s.set_min_p(-1); }},
           Case{"sampling.repetition_penalty", [](v1::Sampling& s) { s.set_repetition_penalty(0); }},
           Case{"sampling.presence_penalty", [](v1::Sampling& s) { s.set_presence_penalty(INFINITY); }},
           Case{"sampling.frequency_penalty", [](v1::Sampling& s) { s.set_frequency_penalty(NAN); }},
           Case{"sampling.top_logprobs", [](v1::Sampling& s) { s.set_top_logprobs(21); }},
           Case{"sampling.logit_bias", [](v1::Sampling& s) { s.add_logit_bias()->set_token(100); }},
           Case{"sampling.logit_bias", [](v1::Sampling& s) { s.add_logit_bias()->set_bias(INFINITY); }},
       }) {
    v1::GenerateRequest request = good();
    each.spoil(sampling_of(request));
    expect_refused(request, Code::kInvalidArgument, each.begins);
  }
}

}  // namespace
}  // namespace strata::gpu_worker
