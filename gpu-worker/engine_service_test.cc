// The service over a real socket, with the fake device behind the window loop.

#include "gpu-worker/engine_service.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "gpu-worker/fake_device.h"
#include "gpu-worker/service_test_server.h"
#include "services/grammar/test_support.h"

namespace strata::gpu_worker {
namespace {

v1::GenerateRequest request_of(std::vector<int32_t> prompt, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.mutable_prompt_tokens()->Add(prompt.begin(), prompt.end());
  request.set_max_tokens(max_tokens);
  return request;
}

class EngineServiceTest : public testing::Test {
 protected:
  ~EngineServiceTest() override {
    if (!may_compile_.try_wait()) may_compile_.count_down();
  }
  struct Answer {
    std::vector<int32_t> tokens;
    std::vector<v1::GenerateResponse> events;
    grpc::Status status;
    const v1::Finished& finished() const { return events.back().finished(); }
  };
  Answer ask(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    limit(context);
    Answer answer;
    auto stub = v1::Engine::NewStub(server_.channel());
    auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.has_token()) answer.tokens.push_back(response.token().id());
      answer.events.push_back(response);
    }
    answer.status = reader->Finish();
    return answer;
  }
  bool wait_idle() {
    for (int i = 0; i < 10000 && loop_.counters().sequences_running != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return loop_.counters().sequences_running == 0;
  }
  EngineServiceOptions options() {
    EngineServiceOptions options{.loop = &loop_,
                                 .constraints = &constraints_,
                                 .limits = {.vocab = kFakeVocab, .context_tokens = 100000},
                                 .facts = {},
                                 .fill = {}};
    options.facts.set_sequences_max(2);
    options.fill = [](v1::GetEngineResponse& response) { response.add_degraded("cache-manager"); };
    return options;
  }

  FakeDevice device_{2};
  WindowLoop loop_{{.device = &device_, .context_tokens = 100000, .prefill_chunk_tokens = 8}};
  std::latch may_compile_{1};
  ConstraintMaker constraints_{{.vocab = kFakeVocab, .load_vocabulary = [this] {
                                  may_compile_.wait();
                                  return grammar::byte_vocabulary();
                                }}};
  EngineService service_{options()};
  ServiceTestServer server_{{&service_}};
};

TEST_F(EngineServiceTest, StreamsProgressTokensAndTheEnd) {
  Answer answer = ask(request_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, 5));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, fake_answer({1, 2, 3, 4, 5, 6, 7, 8, 9}, 5));
  ASSERT_EQ(answer.events.size(), 3u + 5 + 1);
  EXPECT_EQ(answer.events[0].progress().processed(), 0u);
  EXPECT_EQ(answer.events[0].progress().total(), 9u);
  EXPECT_EQ(answer.events[2].progress().processed(), 9u);
  EXPECT_EQ(answer.events[3].token().index(), 0u);
  EXPECT_EQ(answer.finished().reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(answer.finished().generated_tokens(), 5u);
  EXPECT_EQ(answer.finished().prompt_tokens_computed(), 9u);
}

TEST_F(EngineServiceTest, SaysWhatIsWrongWithARequest) {
  Answer answer = ask(request_of({1, kFakeVocab}, 5));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(answer.status.error_message().find("prompt_tokens[1]"), std::string::npos);
  EXPECT_TRUE(answer.events.empty());
}

TEST_F(EngineServiceTest, AReaderThatGoesAwayStopsTheWork) {
  auto stub = v1::Engine::NewStub(server_.channel());
  grpc::ClientContext context;
  limit(context);
  auto reader = stub->Generate(&context, request_of({1}, 90000));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(loop_.counters().sequences_running, 1u);
  context.TryCancel();
  EXPECT_TRUE(wait_idle());
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(EngineServiceTest, AReaderThatDoesNotReadHoldsNobodyUp) {
  auto stub = v1::Engine::NewStub(server_.channel());
  grpc::ClientContext lazy_context;
  limit(lazy_context);
  auto lazy = stub->Generate(&lazy_context, request_of({1}, 20000));
  Answer answer = ask(request_of({2}, 50));
  EXPECT_EQ(answer.tokens, fake_answer({2}, 50));
  EXPECT_TRUE(wait_idle()) << "the lazy reader's answer waits in its queue, not in the loop";
  std::size_t tokens = 0;
  v1::GenerateResponse response;
  while (lazy->Read(&response)) tokens += response.has_token() ? 1 : 0;
  EXPECT_TRUE(lazy->Finish().ok());
  EXPECT_EQ(tokens, 20000u) << "and is complete when it is read";
}

TEST_F(EngineServiceTest, AnswersTooManyAtOnceWithResourceExhausted) {
  auto stub = v1::Engine::NewStub(server_.channel());
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 2; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    limit(*contexts.back());
    readers.push_back(stub->Generate(contexts.back().get(), request_of({1}, 90000)));
    v1::GenerateResponse response;
    ASSERT_TRUE(readers.back()->Read(&response));
  }
  EXPECT_EQ(ask(request_of({1}, 5)).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (auto& context : contexts) context->TryCancel();
  EXPECT_TRUE(wait_idle());
  EXPECT_TRUE(ask(request_of({1}, 5)).status.ok());
}

TEST_F(EngineServiceTest, AStoppedLoopEndsItsStreams) {
  auto stub = v1::Engine::NewStub(server_.channel());
  grpc::ClientContext context;
  limit(context);
  auto reader = stub->Generate(&context, request_of({1}, 90000));
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  loop_.stop();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ask(request_of({1}, 5)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EngineServiceTest, ConstrainsAnAnswerToItsGrammar) {
  may_compile_.count_down();
  v1::GenerateRequest request = request_of({1, 2, 'x'}, 50);
  request.mutable_constraint()->set_gbnf(R"(root ::= "x" [0-9]{4})");
  request.mutable_constraint()->set_prompt_tokens(1);
  Answer answer = ask(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.tokens.size(), 4u);
  for (const int32_t token : answer.tokens) EXPECT_TRUE(token >= '0' && token <= '9') << token;
  EXPECT_EQ(answer.finished().reason(), v1::FINISH_REASON_END_TOKEN);
  request.mutable_generated_tokens()->Add(answer.tokens.begin(), answer.tokens.begin() + 2);
  EXPECT_EQ(ask(request).tokens, std::vector<int32_t>(answer.tokens.begin() + 2, answer.tokens.end()));
}

TEST_F(EngineServiceTest, SaysWhatIsWrongWithAGrammar) {
  may_compile_.count_down();
  v1::GenerateRequest request = request_of({1}, 50);
  request.mutable_constraint()->set_gbnf("root ::= missing");
  const Answer answer = ask(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(answer.status.error_message().find("missing"), std::string::npos)
      << answer.status.error_message();
  EXPECT_TRUE(answer.events.empty());
}

TEST_F(EngineServiceTest, AGrammarThatIsCompiledHoldsNobodyUp) {
  auto stub = v1::Engine::NewStub(server_.channel());
  v1::GenerateRequest request = request_of({1}, 50);
  request.mutable_constraint()->set_gbnf("root ::= \"abc\"");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (int i = 0; i < 20; ++i) {  // more than there are threads anywhere
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    limit(*contexts.back());
    readers.push_back(stub->Generate(contexts.back().get(), request));
  }
  EXPECT_EQ(ask(request_of({2}, 50)).tokens, fake_answer({2}, 50));
  v1::GenerateRequest budget = request_of({2}, 3);
  budget.set_thinking_end(900);
  budget.set_thinking_tokens_max(1);
  EXPECT_EQ(ask(budget).tokens[1], 900) << "needs no grammar";
  // Those that give up meanwhile are not begun.
  for (std::size_t i = 1; i < contexts.size(); ++i) contexts[i]->TryCancel();
  for (std::size_t i = 1; i < readers.size(); ++i)
    EXPECT_EQ(readers[i]->Finish().error_code(), grpc::StatusCode::CANCELLED);
  may_compile_.count_down();
  std::string text;
  v1::GenerateResponse response;
  while (readers[0]->Read(&response)) {
    if (response.has_token()) text += static_cast<char>(response.token().id());
  }
  EXPECT_TRUE(readers[0]->Finish().ok());
  EXPECT_EQ(text, "abc");
}

TEST_F(EngineServiceTest, WhatWaitsForItsGrammarEndsWhenTheEngineStops) {
  auto stub = v1::Engine::NewStub(server_.channel());
  grpc::ClientContext context;
  limit(context);
  v1::GenerateRequest request = request_of({1}, 50);
  request.mutable_constraint()->set_gbnf("root ::= \"abc\"");
  auto reader = stub->Generate(&context, request);
  std::thread stopping([&] { constraints_.stop(); });
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  may_compile_.count_down();
  stopping.join();
}

TEST_F(EngineServiceTest, DescribesTheEngine) {
  auto stub = v1::Engine::NewStub(server_.channel());
  grpc::ClientContext context;
  limit(context);
  v1::GetEngineResponse response;
  ASSERT_TRUE(stub->GetEngine(&context, {}, &response).ok());
  EXPECT_EQ(response.sequences_max(), 2u);
  EXPECT_EQ(response.sequences_running(), 0u);
  ASSERT_EQ(response.degraded_size(), 1);
  EXPECT_EQ(response.degraded(0), "cache-manager");
}

}  // namespace
}  // namespace strata::gpu_worker
