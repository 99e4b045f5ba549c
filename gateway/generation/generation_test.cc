// One request from admission to its last byte, on virtual time: the engine is a script, the client is a
// buffer.

#include "gateway/generation/generation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "gateway/generation/test_tokenizer.h"
#include "services/actor/actor_system.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Keeps the calls; the test says what the engine says.
class ScriptedEngine : public EngineClient {
 public:
  struct Call : EngineCall {
    void cancel() override { cancelled = true; }
    GenerateCall request;
    std::function<void(EngineEvent)> say;
    bool cancelled = false;
  };

  void poll(std::function<void(EngineState)>) override {}
  std::shared_ptr<EngineCall> generate(GenerateCall request,
                                       std::function<void(EngineEvent)> on_event) override {
    auto call = std::make_shared<Call>();
    call->request = std::move(request);
    call->say = std::move(on_event);
    calls.push_back(call);
    return call;
  }
  std::vector<std::shared_ptr<Call>> calls;
};

class GenerationTest : public ::testing::Test {
 protected:
  GenerationTest() : probe_(metrics_), executor_(world_.make_executor()) {
    admission_ = std::make_shared<Admission>(
        executor_, AdmissionOptions{.sequences = 1, .queue_limit = 2},
        [this](const AdmissionView& view) { view_ = view; }, [] {});
    engine_ready();
  }

  void engine_ready(uint32_t context = 1000) {
    EngineState state{.phase = EngineState::Phase::kReady};
    state.info.context_tokens = context;
    state.info.sequences_max = 1;
    tell(admission_, std::move(state));
    world_.deliver_all();
  }

  GenerationJob job(bool stream) {
    GenerationJob job{.sampling = {.seed = 42}, .max_tokens = 50, .stream = stream};
    job.prompts.push_back({.tokens = {1, 2, 3, 4}});
    job.format =
        make_chat_format({.id = "chatcmpl-1", .created = 1, .model = "demo", .fingerprint = "fp"}, {});
    return job;
  }

  struct Running {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<Generation> generation;
    bool over = false;
    std::string received;

    const std::string& read() { return received += exchange->take_buffer(SIZE_MAX); }
    // The joined content of the chunks received.
    std::string content() {
      std::string text;
      for (const auto& chunk : chunks()) {
        if (chunk.as_object().contains("error") || chunk.at("choices").as_array().empty()) continue;
        const auto& delta = chunk.at("choices").at(0).at("delta").as_object();
        if (delta.contains("content")) text += std::string_view(delta.at("content").as_string());
      }
      return text;
    }
    std::vector<boost::json::value> chunks() {
      std::vector<boost::json::value> out;
      const std::string& text = read();
      for (std::size_t at = text.find("data: {"); at != std::string::npos;
           at = text.find("data: {", at + 1)) {
        out.push_back(boost::json::parse(text.substr(at + 6, text.find("\n\n", at) - at - 6)));
      }
      return out;
    }
  };

  Running& start(GenerationJob job) {
    auto running = std::make_unique<Running>();
    Running* raw = running.get();
    runs_.push_back(std::move(running));
    HttpRequest request{.method = "POST"};
    request.id = fmt::format("r{}", runs_.size());
    raw->exchange = std::make_shared<Exchange>(std::move(request), [] {});
    GenerationEnvironment environment{.tokenizer = &test_tokenizer(),
                                      .engine = &engine_,
                                      .probe = &probe_,
                                      .admission = admission_,
                                      .limits = {.keepalive = seconds(5), .backlog_bytes_max = 16 * 1024}};
    raw->generation = std::make_shared<Generation>(executor_, runs_.size(), environment, raw->exchange,
                                                   std::move(job), [raw](TicketId) { raw->over = true; });
    tell(raw->generation, Generation::Start{});
    world_.deliver_all();
    return *raw;
  }

  ScriptedEngine::Call& call() { return *engine_.calls.back(); }
  void say(EngineEvent event) {
    call().say(std::move(event));
    world_.deliver_all();
  }
  // The engine generates the text from token `first` on.
  void generate(std::string_view text) {
    auto& request = call().request;
    auto index = static_cast<uint32_t>(request.generated_tokens.size() + said_[&call()]);
    for (int32_t id : test_tokenizer().encode_trusted(text)) {
      say(GeneratedToken{.id = id, .index = index++, .logprob = -0.1f});
      ++said_[&call()];
    }
  }
  void end(Status status = {}) { say(EngineEnded{std::move(status)}); }
  void finish(EngineFinished::Reason reason = EngineFinished::Reason::kEndToken) {
    say(EngineFinished{.reason = reason, .prompt_tokens_computed = 3, .prompt_tokens_reused = 1});
    end();
  }
  double count(const std::string& name, const std::string& label) {
    double sum = 0;
    for (const auto& family : metrics_.collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        for (const auto& given : metric.label) {
          if (given.value == label) sum += metric.counter.value;
        }
      }
    }
    return sum;
  }

  actor::VirtualWorld world_;
  obs::Metrics metrics_{{}};
  GatewayProbe probe_;
  std::shared_ptr<actor::Executor> executor_;
  ScriptedEngine engine_;
  std::shared_ptr<Admission> admission_;
  AdmissionView view_;
  std::vector<std::unique_ptr<Running>> runs_;
  std::map<ScriptedEngine::Call*, std::size_t> said_;
};

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

TEST_F(GenerationTest, AStreamHasHeadersAtOnceThenRoleTextOneFinishUsageAndDone) {
  GenerationJob request = job(true);
  request.include_usage = true;
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

}  // namespace
}  // namespace strata::gateway
