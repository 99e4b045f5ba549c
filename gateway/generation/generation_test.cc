// One request from admission to its last byte, on virtual time: the engine is a script, the client is a
// buffer.

#include "gateway/testing/generation_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::GenerationTest;

TEST_F(GenerationTest, AWholeAnswerHasTextFinishAndUsage) {
  Running& run = start(job(false));
  ASSERT_EQ(engine_.calls.size(), 1u);
  EXPECT_EQ(call().request.prompt_tokens, (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(call().request.max_tokens, 50u);
  EXPECT_EQ(call().request.sampling.seed, 42u);
  EXPECT_FALSE(call().request.end_tokens.empty());
  generate("A violin.");
  EXPECT_EQ(run.read(), "") << "something was sent before the answer was complete";
  finish();
  const std::string& text = run.read();
  auto body = boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "A violin.");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 4);
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 1);
  EXPECT_TRUE(run.over);
  EXPECT_EQ(view_.running, 0u);
  EXPECT_EQ(count("strata_requests_total", "ok"), 1);
  EXPECT_EQ(
      count("strata_prompt_tokens_total", "computed") + count("strata_prompt_tokens_total", "reused_live"),
      4);
}

TEST_F(GenerationTest, TheEngineIsToldWhatTheAnswerIsHeldTo) {
  start(job(false));
  EXPECT_FALSE(call().request.constraint);
  finish();
  GenerationJob request = job(false);
  request.grammar = {.gbnf = "root ::= \"a\"", .param = "grammar"};
  request.prompts[0].call_tokens = 2;
  start(std::move(request));
  ASSERT_TRUE(call().request.constraint);
  EXPECT_EQ(call().request.constraint->gbnf, "root ::= \"a\"");
  EXPECT_EQ(call().request.constraint->prompt_tokens, 2u);
}

// Rule B16.
TEST_F(GenerationTest, ThinkingLeavesAFifthOfTheCapToTheAnswer) {
  const auto thinking = [this](uint32_t budget, std::optional<uint32_t> cap) {
    GenerationJob request = job(false);
    request.prompts[0].in_thinking = true;
    request.thinking_tokens_max = budget;
    request.max_tokens = cap;
    start(std::move(request));
    EXPECT_EQ(call().request.thinking_end, test_tokenizer().find_token("</think>"));
    const uint32_t tokens = call().request.thinking_tokens_max;
    finish();
    return tokens;
  };
  EXPECT_EQ(thinking(kThinkingUnlimited, 50), 40u);
  EXPECT_EQ(thinking(30, 50), 30u);
  EXPECT_EQ(thinking(45, 50), 40u);
  EXPECT_EQ(thinking(0, 50), 0u);
  EXPECT_EQ(thinking(kThinkingUnlimited, 1), 0u);
  EXPECT_EQ(thinking(kThinkingUnlimited, {}), 796u) << "of the 996 tokens that the context leaves";
}

TEST_F(GenerationTest, ThinkingThatTheModelOpensItselfHasTheSameBudget) {
  GenerationJob request = job(false);
  request.thinking_tokens_max = 30;
  Running& run = start(std::move(request));
  EXPECT_EQ(call().request.thinking_begin, test_tokenizer().find_token("<think>"));
  EXPECT_EQ(call().request.thinking_end, test_tokenizer().find_token("</think>"));
  EXPECT_EQ(call().request.thinking_tokens_max, 30u);
  finish();
  EXPECT_TRUE(run.over);

  GenerationJob open = job(false);
  open.prompts[0].in_thinking = true;
  start(std::move(open));
  EXPECT_FALSE(call().request.thinking_begin);
  finish();

  GenerationJob text = job(false), begun = job(false);
  text.endpoint = Endpoint::kCompletions;
  begun.calls = {.parse = true, .begun = "\n{\"name\": \"f\", \"arguments\":"};
  for (GenerationJob* none : {&text, &begun}) {
    start(std::move(*none));
    EXPECT_FALSE(call().request.thinking_begin || call().request.thinking_end);
    finish();
  }
}

TEST_F(GenerationTest, AGrammarThatTheEngineRefusesIsAFaultOfTheRequest) {
  GenerationJob request = job(false);
  request.grammar = {.gbnf = "root ::= \"a\"", .param = "grammar"};
  Running& run = start(std::move(request));
  end(Status(Code::kInvalidArgument, "more states than there may be"));
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 400 "));
  EXPECT_NE(run.received.find(R"("param":"grammar")"), std::string::npos);
  EXPECT_NE(run.received.find("more states than there may be"), std::string::npos);
  EXPECT_EQ(count("strata_requests_total", "bad_request"), 1);

  Running& free = start(job(false));
  end(Status(Code::kInvalidArgument, "odd"));
  EXPECT_TRUE(free.read().starts_with("HTTP/1.1 500 ")) << "nothing that the client could have done";
}

TEST_F(GenerationTest, SeveralAnswersToAPromptFollowEachOtherAndCountItOnce) {
  GenerationJob request = job(true);
  request.answers = request.choices = 2;
  request.format = make_chat_format({.id = "chatcmpl-1"}, {.include_usage = true});
  Running& run = start(std::move(request));
  EXPECT_EQ(call().request.sampling.seed, 42u);
  generate("One.");
  finish();
  ASSERT_EQ(engine_.calls.size(), 2u);
  EXPECT_EQ(call().request.sampling.seed, 43u);
  EXPECT_EQ(call().request.prompt_tokens, engine_.calls.front()->request.prompt_tokens);
  generate("Two.");
  finish();
  std::map<int64_t, std::string> text;
  std::map<int64_t, int> roles, finishes;
  const auto chunks = run.chunks();
  for (const auto& chunk : chunks) {
    for (const auto& choice : chunk.at("choices").as_array()) {
      const int64_t index = choice.at("index").to_number<int64_t>();
      const auto& delta = choice.at("delta").as_object();
      if (delta.contains("content")) text[index] += std::string_view(delta.at("content").as_string());
      roles[index] += delta.contains("role") ? 1 : 0;
      finishes[index] += choice.at("finish_reason").is_null() ? 0 : 1;
    }
  }
  EXPECT_EQ(text, (std::map<int64_t, std::string>{{0, "One."}, {1, "Two."}}));
  EXPECT_EQ(roles, (std::map<int64_t, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(finishes, roles);
  const auto& usage = chunks.back().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 4);
  EXPECT_EQ(usage.at("completion_tokens"),
            test_tokenizer().encode_trusted("One.").size() + test_tokenizer().encode_trusted("Two.").size());
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 1);
  EXPECT_TRUE(run.over);
}

TEST_F(GenerationTest, OfMoreAnswersThanChoicesTheLikeliestPerTokenAreGiven) {
  GenerationJob request = job(false);
  request.endpoint = Endpoint::kCompletions;
  request.prompts.push_back({.tokens = {5, 6}});
  request.answers = 3;
  request.choices = 2;
  request.format = make_completion_format({.id = "cmpl-1"}, {});
  Running& run = start(std::move(request));
  const auto answer = [&](std::string_view text, float logprob) {
    EXPECT_TRUE(call().request.sampling.logprobs) << "nothing to choose by";
    uint32_t index = 0;
    for (const int32_t id : test_tokenizer().encode_trusted(text))
      say(GeneratedToken{.id = id, .index = index++, .logprob = logprob});
    finish();
  };
  answer("Worst", -3.0f);
  answer("Second and much longer than the others", -0.5f);  // in sum the least likely
  answer("Best", -0.25f);
  EXPECT_EQ(call().request.sampling.seed, 42u) << "the next prompt begins anew";
  answer("Alike", -1.0f);
  answer("", 0.0f);
  answer("Alike too", -1.0f);
  const std::string& text = run.read();
  auto body = boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
  const auto& choices = body.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  const char* expected[] = {"Best", "Second and much longer than the others", "Alike", "Alike too"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(choices[i].at("text"), expected[i]);
    EXPECT_EQ(choices[i].at("index"), i);
    EXPECT_TRUE(choices[i].at("logprobs").is_null()) << "nobody asked for them";
  }
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 6);
}

TEST_F(GenerationTest, CallsOfSeveralChoicesHaveDifferentIds) {
  GenerationJob request = job(false);
  request.answers = request.choices = 2;
  request.calls.parse = true;
  Running& run = start(std::move(request));
  for (int i = 0; i < 2; ++i) {
    generate("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
    finish();
  }
  const std::string& text = run.read();
  auto body = boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
  const auto id = [&](int choice) {
    return body.at("choices")
        .at(static_cast<std::size_t>(choice))
        .at("message")
        .at("tool_calls")
        .at(0)
        .at("id");
  };
  EXPECT_NE(id(0), id(1));
}

TEST_F(GenerationTest, AStreamHasHeadersAtOnceThenRoleTextOneFinishUsageAndDone) {
  GenerationJob request = job(true);
  request.format = make_chat_format({.id = "chatcmpl-1"}, {.include_usage = true});
  Running& run = start(std::move(request));
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"));
  generate("A violin.");
  finish(EngineFinished::Reason::kLength);
  auto chunks = run.chunks();
  EXPECT_EQ(chunks.front().at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_EQ(run.content(), "A violin.");
  int finishes = 0;
  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_FALSE(chunks[i].as_object().contains("usage"));
    if (!chunks[i].at("choices").at(0).at("finish_reason").is_null()) ++finishes;
  }
  EXPECT_EQ(finishes, 1);
  EXPECT_EQ(chunks[chunks.size() - 2].at("choices").at(0).at("finish_reason"), "length");
  EXPECT_TRUE(chunks.back().at("choices").as_array().empty());
  EXPECT_EQ(chunks.back().at("usage").at("prompt_tokens"), 4);
  EXPECT_NE(run.received.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_TRUE(run.exchange->finished());
}

TEST_F(GenerationTest, AStopStringEndsTheEnginesWork) {
  GenerationJob request = job(true);
  request.stop = {" violin"};
  Running& run = start(std::move(request));
  generate("A violin");
  EXPECT_TRUE(call().cancelled);
  EXPECT_EQ(run.content(), "A");
  EXPECT_TRUE(run.exchange->finished());
  EXPECT_FALSE(run.over) << "the sequence was given up before the engine was done with it";
  EXPECT_EQ(view_.running, 1u);
  end(Status(Code::kCancelled, "cancelled"));
  EXPECT_TRUE(run.over);
  EXPECT_EQ(view_.running, 0u);
  EXPECT_EQ(count("strata_finish_total", "stop_string"), 1);
  EXPECT_EQ(count("strata_requests_total", "client_cancel"), 0);
}

TEST_F(GenerationTest, TheCapIsClampedToWhatTheContextLeaves) {
  engine_ready(/*context=*/30);
  GenerationJob request = job(false);
  request.max_tokens = 4000;
  start(std::move(request));
  EXPECT_EQ(call().request.max_tokens, 26u);
}

TEST_F(GenerationTest, APromptThatFillsTheContextIsRefusedWithBothCounts) {
  engine_ready(/*context=*/4);
  Running& run = start(job(false));
  EXPECT_TRUE(engine_.calls.empty());
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 400"));
  EXPECT_NE(run.received.find("context_length_exceeded"), std::string::npos);
  EXPECT_NE(run.received.find("has 4 tokens and the context holds 4"), std::string::npos);
  EXPECT_TRUE(run.over);
  EXPECT_EQ(view_.running, 0u);
}

TEST_F(GenerationTest, GoesOnWhereItWasWhenTheEngineComesBack) {
  Running& run = start(job(true));
  generate("A violin is");
  const std::vector<int32_t> sent = test_tokenizer().encode_trusted("A violin is");
  end(Status(Code::kUnavailable, "socket closed"));
  EXPECT_FALSE(run.exchange->finished());
  world_.advance(seconds(20));
  EXPECT_EQ(engine_.calls.size(), 1u);
  engine_ready();
  world_.advance(seconds(1));
  ASSERT_EQ(engine_.calls.size(), 2u);
  EXPECT_EQ(call().request.generated_tokens, sent);
  EXPECT_EQ(call().request.sampling.seed, 42u);
  EXPECT_EQ(call().request.max_tokens, 50u);
  generate(" an instrument.");
  finish();
  EXPECT_EQ(run.content(), "A violin is an instrument.");
  EXPECT_NE(run.received.find(": keep-alive"), std::string::npos);
  EXPECT_EQ(count("strata_requests_total", "ok"), 1);
}

TEST_F(GenerationTest, GivesUpWithATypedErrorAndDoneWhenTheEngineStaysAway) {
  Running& run = start(job(true));
  generate("A");
  end(Status(Code::kUnavailable, "socket closed"));
  world_.advance(seconds(61));
  auto chunks = run.chunks();
  EXPECT_EQ(chunks.back().at("error").at("code"), "engine_unavailable");
  EXPECT_TRUE(run.received.find("data: [DONE]\n\n") != std::string::npos);
  EXPECT_TRUE(run.over);
  EXPECT_EQ(count("strata_requests_total", "timeout"), 1);
}

TEST_F(GenerationTest, ARequestOfWhichTheEngineDiesEachTimeIsNotTriedForEver) {
  Running& run = start(job(false));
  for (int i = 0; i < 10 && !run.over; ++i) {
    say(PromptProgress{.total = 4, .processed = 1});
    end(Status(Code::kUnavailable, "socket closed"));
    engine_ready();
    world_.advance(seconds(1));
  }
  EXPECT_TRUE(run.over);
  EXPECT_EQ(engine_.calls.size(), 4u);
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 500"));
}

TEST_F(GenerationTest, AnEngineThatSaysItIsReadyAndNeverAnswersIsNotAskedForEver) {
  Running& run = start(job(false));
  for (int i = 0; i < 100 && !run.over; ++i) {
    end(Status(Code::kUnavailable, "connection refused"));
    engine_ready();
    world_.advance(milliseconds(100));
  }
  EXPECT_TRUE(run.over);
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 500"));
  EXPECT_EQ(count("strata_requests_total", "engine_error"), 1);
}

TEST_F(GenerationTest, TokensOfAnEarlierCallAreDroppedAndCounted) {
  Running& run = start(job(true));
  generate("A");
  auto first = engine_.calls.front();
  end(Status(Code::kUnavailable, "socket closed"));
  engine_ready();
  world_.advance(seconds(1));
  first->say(GeneratedToken{.id = 7, .index = 1});
  world_.deliver_all();
  EXPECT_EQ(run.content(), "A");
  EXPECT_EQ(count("strata_protocol_errors_total", "stale_event"), 1);
}

TEST_F(GenerationTest, ATokenOutOfOrderEndsTheRequestInsteadOfGivingWrongText) {
  Running& run = start(job(false));
  say(GeneratedToken{.id = 7, .index = 3});
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 500"));
  EXPECT_TRUE(call().cancelled);
}

TEST_F(GenerationTest, AClientThatLeavesIsNoticedInEveryPhase) {
  for (bool stream : {false, true}) {
    const double before = count("strata_requests_total", "client_cancel");
    Running& active = start(job(stream));
    Running& queued = start(job(stream));
    EXPECT_EQ(view_.waiting, 1u);

    queued.exchange->set_client_gone();
    world_.deliver_all();
    EXPECT_TRUE(queued.over);
    EXPECT_EQ(view_.waiting, 0u);
    EXPECT_FALSE(call().cancelled) << "the queued client's leaving ended somebody else's answer";

    active.exchange->set_client_gone();  // no token yet: prefill
    world_.deliver_all();
    EXPECT_TRUE(call().cancelled);
    end(Status(Code::kCancelled, "cancelled"));
    EXPECT_TRUE(active.over);

    Running& decoding = start(job(stream));
    generate("A violin");
    decoding.exchange->set_client_gone();
    world_.deliver_all();
    EXPECT_TRUE(call().cancelled);
    end(Status(Code::kCancelled, "cancelled"));
    EXPECT_TRUE(decoding.over);
    EXPECT_EQ(view_.running, 0u);
    EXPECT_EQ(count("strata_requests_total", "client_cancel"), before + 3);
  }
  for (const char* phase : {"queued", "prefill", "decode"})
    EXPECT_EQ(count("strata_client_disconnects_total", phase), 2) << phase;
}

TEST_F(GenerationTest, AClientThatDoesNotReadIsCutOffInsteadOfCostingMemory) {
  Running& run = start(job(true));
  for (uint32_t i = 0; i < 2000 && !call().cancelled; ++i) {
    say(GeneratedToken{.id = test_tokenizer().encode_trusted(i % 2 == 0 ? "a" : "b").front(), .index = i});
  }
  EXPECT_TRUE(call().cancelled);
  EXPECT_TRUE(run.exchange->aborted());
  EXPECT_LE(run.exchange->buffered_bytes(), 17u * 1024);
  EXPECT_EQ(count("strata_requests_total", "client_cancel"), 1);
}

TEST_F(GenerationTest, SilentStreamsGetCommentsAndQueuedOnesTheirPosition) {
  Running& active = start(job(true));
  Running& queued = start(job(true));
  world_.advance(seconds(11));
  EXPECT_NE(active.read().find(": keep-alive\n\n"), std::string::npos);
  const std::string& text = queued.read();
  EXPECT_NE(text.find(": queued, position 1\n\n", text.find(": queued, position 1\n\n") + 1),
            std::string::npos)
      << text;
}

TEST_F(GenerationTest, OneTooManyGets429AtOnceEvenAsAStream) {
  for (int i = 0; i < 3; ++i) start(job(true));
  Running& late = start(job(true));
  EXPECT_TRUE(late.read().starts_with("HTTP/1.1 429"));
  EXPECT_NE(late.received.find("Retry-After: "), std::string::npos);
  EXPECT_NE(late.received.find("rate_limit_error"), std::string::npos);
  EXPECT_TRUE(late.over);
}

TEST_F(GenerationTest, AThinkingThatNeverEndsIsReportedAndNotPassedOffAsAnEmptyAnswer) {
  GenerationJob request = job(false);
  request.prompts[0].in_thinking = true;
  Running& run = start(std::move(request));
  generate("I wonder");
  finish();
  EXPECT_NE(run.read().find(R"("finish_detail":"ended_in_thinking")"), std::string::npos);
  EXPECT_NE(run.received.find(R"("reasoning_content":"I wonder")"), std::string::npos);
  EXPECT_EQ(count("strata_finish_total", "ended_in_thinking"), 1);
}

TEST_F(GenerationTest, SeveralPromptsAreAnsweredOneAfterAnotherInOneSequence) {
  GenerationJob request = job(false);
  request.endpoint = Endpoint::kCompletions;
  request.prompts.push_back({.tokens = {5, 6}, .echo = "The fox"});
  request.format =
      make_completion_format({.id = "cmpl-1", .created = 1, .model = "demo", .fingerprint = "fp"}, {});
  Running& run = start(std::move(request));
  generate(" upon");
  finish(EngineFinished::Reason::kLength);
  ASSERT_EQ(engine_.calls.size(), 2u);
  EXPECT_EQ(call().request.prompt_tokens, (std::vector<int32_t>{5, 6}));
  generate(" ran");
  finish(EngineFinished::Reason::kLength);
  const std::string& text = run.read();
  auto body = boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
  EXPECT_EQ(body.at("choices").at(0).at("text"), " upon");
  EXPECT_EQ(body.at("choices").at(1).at("text"), "The fox ran");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 6);
}

TEST_F(GenerationTest, ASequenceThatIsStillBusyIsAskedForAgain) {
  Running& run = start(job(false));
  end(Status(Code::kResourceExhausted, "no free sequence"));
  EXPECT_FALSE(run.over);
  world_.advance(milliseconds(100));
  ASSERT_EQ(engine_.calls.size(), 2u);
  generate("Hi");
  finish();
  EXPECT_TRUE(run.read().starts_with("HTTP/1.1 200"));
}

TEST_F(GenerationTest, StoppingTheServerEndsAStreamWithATypedErrorAndDone) {
  Running& run = start(job(true));
  generate("A violin");
  tell(run.generation, Generation::Stop{});
  world_.deliver_all();
  EXPECT_EQ(run.chunks().back().at("error").at("code"), "shutting_down");
  EXPECT_NE(run.received.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_TRUE(call().cancelled);
}

TEST_F(GenerationTest, ProgressOfALongPromptIsShownWhenAskedFor) {
  GenerationJob request = job(true);
  request.return_progress = true;
  Running& run = start(std::move(request));
  say(PromptProgress{.total = 4, .cached = 1, .processed = 3});
  auto chunk = run.chunks().back();
  EXPECT_EQ(chunk.at("prompt_progress").at("processed"), 3);
  EXPECT_TRUE(chunk.at("choices").at(0).at("delta").as_object().empty());
}

// ---- what was read before

class ReuseTest : public GenerationTest {
 protected:
  static constexpr IndexIdentity kIdentity{.model = {.high = 1, .low = 1}, .all = {.high = 2, .low = 2}};
  static constexpr NamespaceId kAlice{.high = 5, .low = 5};

  // The first `tokens` of 1, 2, 3 ...
  static FeedState state(uint64_t number, Source source, int32_t tokens, NamespaceId owner = kAlice) {
    FeedState state{.id = {.high = 9, .low = number}, .source = source, .owner = owner};
    for (int32_t token = 1; token <= tokens; ++token) state.tokens.push_back(token);
    return state;
  }
  void keepers_have(std::vector<FeedState> engine, std::vector<FeedState> store) {
    tell(index_, ConversationIndex::Start{});
    world_.deliver_all();
    engine_feed_.list(7, kIdentity, std::move(engine));
    store_feed_.list(8, kIdentity, std::move(store));
    world_.deliver_all();
  }
  // Of the prompt 1, 2 ... count.
  GenerationJob long_job(bool stream, int32_t count = 20) {
    GenerationJob request = job(stream);
    request.name_space = kAlice;
    request.return_reuse = true;
    request.prompts[0].tokens.clear();
    for (int32_t token = 1; token <= count; ++token) request.prompts[0].tokens.push_back(token);
    return request;
  }
  static boost::json::value body(Running& run) {
    const std::string& text = run.read();
    return boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
  }
  void expect_sums(double lookups, double prompt_tokens) {
    EXPECT_EQ(count("strata_conv_lookups_total"), lookups);
    EXPECT_EQ(count("strata_conv_misses_total"), count("strata_conv_lookups_total", "miss"));
    EXPECT_EQ(count("strata_prompt_tokens_total"), prompt_tokens);
  }
};

TEST_F(ReuseTest, AParkedStateThatHoldsMoreThanTheDeviceIsNamedToTheEngine) {
  keepers_have({state(1, Source::kLive, 10)}, {state(2, Source::kDisk, 15)});
  Running& run = start(long_job(false));
  ASSERT_TRUE(call().request.parked);
  EXPECT_EQ(call().request.parked->id, (SnapshotId{.high = 9, .low = 2}));
  EXPECT_EQ(call().request.parked->tokens, 15u);
  EXPECT_EQ(call().request.name_space, kAlice);
  say(PromptProgress{.total = 20, .cached = 15, .processed = 15});
  generate("A violin.");
  say(EngineFinished{.prompt_tokens_reused = 15, .source = Source::kDisk});
  end();
  EXPECT_NE(run.read().find("X-Strata-Reuse: reused=15 prompt=20 source=disk not_more=new at=15\r\n"),
            std::string::npos)
      << run.received;
  EXPECT_EQ(body(run).at("usage").at("prompt_tokens_details").at("cached_tokens"), 15);
  const auto reuse = body(run).at("choices").at(0).at("reuse");
  EXPECT_EQ(reuse.at("reused_tokens"), 15);
  EXPECT_EQ(reuse.at("source"), "disk");
  EXPECT_EQ(reuse.at("why_not_more").at("cause"), "new");
  EXPECT_EQ(count("strata_conv_lookups_total", "hit_disk"), 1);
  EXPECT_EQ(count("strata_prompt_tokens_total", "reused_disk"), 15);
  expect_sums(1, 20);
}

TEST_F(ReuseTest, WhatTheDeviceHasIsNotRestored) {
  keepers_have({state(1, Source::kLive, 15)}, {state(2, Source::kRam, 15)});
  Running& run = start(long_job(true));
  EXPECT_FALSE(call().request.parked);
  say(PromptProgress{.total = 20, .cached = 15, .processed = 15});
  generate("A violin.");
  say(EngineFinished{.prompt_tokens_reused = 15, .source = Source::kLive});
  end();
  auto chunks = run.chunks();
  EXPECT_EQ(chunks.back().at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(chunks.back().at("choices").at(0).at("reuse").at("source"), "live");
  EXPECT_EQ(run.received.find("X-Strata-Reuse"), std::string::npos) << "sent before the engine had begun";
  EXPECT_EQ(count("strata_conv_lookups_total", "hit_live"), 1);
  expect_sums(1, 20);
}

TEST_F(ReuseTest, OneNamespaceKnowsNothingOfAnother) {
  keepers_have({}, {state(2, Source::kRam, 15, NamespaceId{.high = 6, .low = 6})});
  start(long_job(false));
  EXPECT_FALSE(call().request.parked);
  say(PromptProgress{.total = 20});
  end(Status(Code::kInternal, "failed"));
  EXPECT_EQ(count("strata_conv_misses_total", "new"), 1);
  expect_sums(1, 0);
}

TEST_F(ReuseTest, AStateThatCouldNotBeRestoredIsSaidAndCounted) {
  keepers_have({}, {state(2, Source::kRam, 15)});
  Running& run = start(long_job(false));
  say(PromptProgress{.total = 20, .cached = 0, .processed = 0});
  generate("A violin.");
  say(EngineFinished{.not_restored = "page 3 is damaged"});
  end();
  const auto reuse = body(run).at("choices").at(0).at("reuse");
  EXPECT_EQ(reuse.at("reused_tokens"), 0);
  EXPECT_EQ(reuse.at("why_not_more").at("cause"), "error");
  EXPECT_EQ(reuse.at("why_not_more").at("text"),
            "a state with 15 tokens could not be restored: page 3 is damaged");
  EXPECT_EQ(count("strata_conv_misses_total", "error"), 1);
  EXPECT_EQ(count("strata_prompt_tokens_total", "computed"), 20);
  expect_sums(1, 20);
}

TEST_F(ReuseTest, CheckpointsAreAskedForBehindWhatIsReused) {
  keepers_have({state(1, Source::kCheckpoint, 10)}, {});
  reuse_.checkpoints = {.every_tokens = 0, .gap_tokens_min = 1};
  GenerationJob request = long_job(false);
  request.prompts[0].landmarks = {.system_end = 5, .last_user = 12, .turns = {5, 9, 12, 18}};
  start(std::move(request));
  EXPECT_EQ(call().request.checkpoints, (std::vector<CheckpointPosition>{
                                            {.position = 12, .kind = snapshot::SnapshotKind::kBeforeLastUser},
                                            {.position = 18, .kind = snapshot::SnapshotKind::kTurn}}));
  EXPECT_EQ(call().request.shared_prompt_tokens, 0u) << "nobody declared roots shared";
}

TEST_F(ReuseTest, RootsAreSharedWhereTheOperatorSaysSo) {
  keepers_have({state(1, Source::kCheckpoint, 10, shared_namespace())}, {});
  reuse_.share_roots = true;
  GenerationJob request = long_job(false);
  request.prompts[0].landmarks.system_end = 10;
  Running& run = start(std::move(request));
  EXPECT_EQ(call().request.shared_prompt_tokens, 10u);
  say(PromptProgress{.total = 20, .cached = 10, .processed = 10});
  say(EngineFinished{.prompt_tokens_reused = 10, .source = Source::kCheckpoint});
  end();
  EXPECT_EQ(body(run).at("choices").at(0).at("reuse").at("shared"), true);
  EXPECT_EQ(count("strata_conv_lookups_total", "hit_root"), 1);
  EXPECT_EQ(count("strata_prompt_tokens_total", "reused_root"), 10);
  expect_sums(1, 20);
}

TEST_F(ReuseTest, AnAnswerThatLosesItsEngineIsLookedUpAgain) {
  keepers_have({state(1, Source::kLive, 15)}, {state(2, Source::kDisk, 12)});
  Running& run = start(long_job(true));
  EXPECT_FALSE(call().request.parked);
  say(PromptProgress{.total = 20, .cached = 15, .processed = 20});
  generate("A violin is");
  const std::vector<int32_t> sent = call().request.generated_tokens;
  EXPECT_TRUE(sent.empty());
  // While it answered, its prompt was parked.
  store_feed_.say(state(3, Source::kRam, 20));
  engine_feed_.say(FeedEnded{Status(Code::kUnavailable, "socket closed")});
  end(Status(Code::kUnavailable, "socket closed"));
  engine_ready();
  world_.advance(seconds(1));
  ASSERT_EQ(engine_.calls.size(), 2u);
  ASSERT_TRUE(call().request.parked);
  EXPECT_EQ(call().request.parked->id, (SnapshotId{.high = 9, .low = 3}));
  EXPECT_EQ(call().request.parked->tokens, 20u) << "the whole prompt: the answer's tokens are fed behind it";
  EXPECT_EQ(call().request.generated_tokens, test_tokenizer().encode_trusted("A violin is"));
  say(PromptProgress{.total = 20, .cached = 20, .processed = 20});
  generate(" an instrument.");
  say(EngineFinished{.prompt_tokens_reused = 20, .source = Source::kRam});
  end();
  EXPECT_EQ(run.content(), "A violin is an instrument.");
  EXPECT_EQ(run.chunks().back().at("choices").at(0).at("reuse").at("reused_tokens"), 20);
  EXPECT_EQ(count("strata_conv_lookups_total", "hit_ram"), 1);
  expect_sums(1, 20);
}

TEST_F(ReuseTest, WhatAClientThatLeavesHadReadIsCounted) {
  keepers_have({state(1, Source::kLive, 10)}, {});
  Running& reading = start(long_job(true));
  say(PromptProgress{.total = 20, .cached = 10, .processed = 10});
  say(PromptProgress{.total = 20, .cached = 10, .processed = 16});
  reading.exchange->set_client_gone();
  world_.deliver_all();
  end(Status(Code::kCancelled, "cancelled"));
  EXPECT_EQ(count("strata_prompt_tokens_total", "reused_live"), 10);
  EXPECT_EQ(count("strata_prompt_tokens_total", "computed"), 6);
  expect_sums(1, 16);

  // Before the engine said anything: nobody knows, nothing is counted.
  Running& silent = start(long_job(true));
  silent.exchange->set_client_gone();
  world_.deliver_all();
  end(Status(Code::kCancelled, "cancelled"));
  expect_sums(1, 16);

  // While the search waits for a list.
  store_feed_.say(FeedBegin{.instance = 9, .identity = kIdentity});
  const std::size_t calls = engine_.calls.size();
  Running& searching = start(long_job(true));
  EXPECT_EQ(engine_.calls.size(), calls);
  searching.exchange->set_client_gone();
  world_.deliver_all();
  EXPECT_TRUE(searching.over);
  store_feed_.say(FeedComplete{});
  world_.deliver_all();
  EXPECT_EQ(engine_.calls.size(), calls);
  expect_sums(1, 16);
}

TEST_F(ReuseTest, EveryPromptOfARequestIsLookedUp) {
  keepers_have({}, {state(2, Source::kRam, 15)});
  GenerationJob request = long_job(false);
  request.endpoint = Endpoint::kCompletions;
  request.prompts.push_back({.tokens = {5, 6, 7}});
  request.format =
      make_completion_format({.id = "cmpl-1", .created = 1, .model = "demo", .fingerprint = "fp"}, {});
  Running& run = start(std::move(request));
  say(PromptProgress{.total = 20, .cached = 15, .processed = 15});
  say(EngineFinished{.prompt_tokens_reused = 15, .source = Source::kRam});
  end();
  EXPECT_FALSE(call().request.parked);
  say(PromptProgress{.total = 3, .cached = 0, .processed = 3});
  say(EngineFinished{});
  end();
  EXPECT_NE(run.read().find("X-Strata-Reuse: reused=15 prompt=20 source=ram not_more=new at=15, reused=0 "
                            "prompt=3 not_more=new at=0\r\n"),
            std::string::npos)
      << run.received;
  EXPECT_EQ(body(run).at("usage").at("prompt_tokens_details").at("cached_tokens"), 15);
  EXPECT_EQ(body(run).at("choices").at(1).at("reuse").at("prompt_tokens"), 3);
  expect_sums(2, 23);
}

TEST_F(ReuseTest, ReuseIsShownOnlyWhereItWasAskedFor) {
  GenerationJob request = long_job(false);
  request.return_reuse = false;
  Running& run = start(std::move(request));
  finish();
  EXPECT_EQ(run.read().find("\"reuse\""), std::string::npos);
  EXPECT_NE(run.received.find("X-Strata-Reuse: "), std::string::npos);
}

}  // namespace
}  // namespace strata::gateway
