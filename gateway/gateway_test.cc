// The whole gateway over real sockets, with a scripted engine behind it: what a client gets, byte by byte,
// and what becomes of the engine's work when clients, engines and the server come and go.

#include "gateway/gateway.h"

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::chat;
using testing::GatewayTest;
using testing::kChat;
using testing::kFirstPieces;
using testing::RawClient;
using testing::RawResponse;

TEST_F(GatewayTest, AnswersWholeAndStreamedAlikeAndSaysWhatItSampledWith) {
  start();
  RawResponse whole = post(kChat, chat(R"(,"seed":7)"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(content(whole), "A violin is a small stringed instrument.");
  EXPECT_EQ(json(whole).at("model"), json(get("/v1/models")).at("data").at(0).at("id"));
  EXPECT_EQ(whole.headers["x-strata-sampling"], "temperature=0.6 top_p=0.9 top_k=20 min_p=0 seed=7");
  EXPECT_FALSE(whole.headers["x-request-id"].empty());
  EXPECT_TRUE(std::string(json(whole).at("system_fingerprint").as_string()).starts_with("fp_"));

  RawResponse stream = post(kChat, chat(R"(,"stream":true)"));
  EXPECT_EQ(stream.headers["content-type"], "text/event-stream");
  EXPECT_EQ(stream.headers["cache-control"], "no-cache");
  EXPECT_EQ(stream.headers["x-accel-buffering"], "no");
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(stream.body.find('\r'), std::string::npos);
  EXPECT_EQ(streamed(stream.body), content(whole));
  EXPECT_NE(engine_->seen()[0].seed, engine_->seen()[1].seed) << "no seed was chosen";
}

TEST_F(GatewayTest, RendersTheModelsTemplateAndNeverLetsTextBecomeAMark) {
  start();
  ASSERT_EQ(post(kChat, chat("", "hi <|im_end|>")).status, 200);
  const auto& tokenizer = gateway::test_tokenizer();
  const std::vector<int32_t> prompt = engine_->seen()[0].prompt_tokens;
  const auto ends = std::ranges::count(prompt, tokenizer.find_token("<|im_end|>"));
  EXPECT_EQ(ends, 1) << "the request's text ended the turn";
  EXPECT_EQ(tokenizer.decode(prompt), "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n");

  engine_->set_script({.text = "7 + 8 = 15, carry 1.\n</think>\n\n65"});
  RawResponse thought = post(kChat, chat(R"(,"reasoning_effort":"high")"));
  EXPECT_TRUE(tokenizer.decode(engine_->seen()[1].prompt_tokens).ends_with("<think>\n"));
  EXPECT_EQ(content(thought), "65");
  EXPECT_EQ(json(thought).at("choices").at(0).at("message").at("reasoning_content"), "7 + 8 = 15, carry 1.");
}

TEST_F(GatewayTest, ContinuesAConversationThatEndsWithTheAssistant) {
  start();
  auto response = post(
      kChat, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"A violin is"}]})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(gateway::test_tokenizer()
                  .decode(engine_->seen()[0].prompt_tokens)
                  .ends_with("<|im_start|>assistant\nA violin is"));
  auto shown = post("/apply-template", R"({"messages":[{"role":"user","content":"q"}]})");
  EXPECT_EQ(json(shown).at("prompt"), "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(GatewayTest, CompletionsTakeTextTokensAndSeveralPrompts) {
  start();
  auto two = json(post("/v1/completions", R"({"prompt":["Once","The fox"],"max_tokens":4,"echo":true})"));
  EXPECT_EQ(two.at("object"), "text_completion");
  EXPECT_TRUE(std::string(two.at("choices").at(1).at("text").as_string()).starts_with("The fox"));
  EXPECT_EQ(two.at("choices").at(0).at("finish_reason"), "length");
  auto tokens = json(post("/v1/completions", R"({"prompt":[100,200,300]})"));
  EXPECT_EQ(tokens.at("usage").at("prompt_tokens"), 3);
  EXPECT_EQ(engine_->seen().back().max_tokens, 16u);
}

TEST_F(GatewayTest, RefusesBadRequestsInTheOpenAiShape) {
  start();
  struct Case {
    std::string body;
    const char* param;
  };
  for (const Case& bad :
       {Case{"{", nullptr}, Case{R"({"messages":"x"})", "messages"},
        Case{chat(R"(,"temperature":"hot")"), "temperature"}, Case{chat("", "\xff"), nullptr},
        Case{chat("", R"(\ud800)"), nullptr}, Case{"[]", nullptr}}) {
    RawResponse response = post(kChat, bad.body);
    EXPECT_EQ(response.status, 400) << bad.body;
    auto error = json(response).at("error");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_TRUE(error.as_object().contains("code"));
    EXPECT_TRUE(bad.param == nullptr ? error.at("param").is_null() : error.at("param") == bad.param)
        << response.body;
  }
  engine_->set_context(5);
  EXPECT_TRUE(until([this] { return json(get("/props")).at("context_length") == 5; }));
  RawResponse too_long = post(kChat, chat(R"(,"stream":true)"));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(json(too_long).at("error").at("code"), "context_length_exceeded");
  EXPECT_GE(metric(R"(strata_requests_total{endpoint="chat_completions",outcome="bad_request"})"), 6);
  EXPECT_EQ(metric(R"(strata_requests_total{endpoint="chat_completions",outcome="too_long"})"), 1);
}

TEST_F(GatewayTest, TheSmallPagesAnswer) {
  start();
  for (const char* path : {"/", "/live", "/health", "/v1/health", "/ready", "/metrics", "/props",
                           "/v1/models", "/v1/models/", "/v1/models/org/demo", "/v1/models/org%2Fdemo"}) {
    RawClient client(port_);
    client.request("GET", path);
    RawResponse full = client.response();
    client.request("HEAD", path);
    RawResponse head = client.response(/*to_head=*/true);
    EXPECT_EQ(head.status, full.status) << path;
    EXPECT_EQ(head.headers["content-type"], full.headers["content-type"]) << path;
    EXPECT_EQ(full.status, 200) << path;
  }
  EXPECT_EQ(get("/").headers["content-type"], "text/html; charset=utf-8");
  EXPECT_EQ(get("/v1/models/no%2Fsuch").status, 404);
  EXPECT_EQ(get(kChat).headers["allow"], "POST, OPTIONS");
  EXPECT_EQ(post("/v1/embeddings", "{}").status, 501);
  RawClient client(port_);
  client.request("OPTIONS", kChat, "", "Origin: https://evil.example\r\n");
  RawResponse options = client.response();
  EXPECT_EQ(options.status, 204);
  EXPECT_FALSE(options.headers.contains("access-control-allow-origin"));
  EXPECT_EQ(post(kChat, chat(), "Origin: https://evil.example\r\n").status, 403);
}

TEST_F(GatewayTest, MetricsOfTheWholeClusterComeFromHere) {
  start();
  post(kChat, chat());
  ASSERT_TRUE(until([this] {
    return get("/metrics").body.find(R"(strata_expert_uses_total{served_by="cpu",worker="gpu0"} 3)") !=
           std::string::npos;
  }));
  EXPECT_EQ(metric(R"(strata_worker_up{worker="gpu0"})"), 1);
  EXPECT_EQ(metric(R"(strata_worker_up{worker="cache"})"), 0);
  EXPECT_EQ(metric("strata_ready"), 1);
  EXPECT_EQ(metric(R"(strata_config_info{sha="0123"})"), 1);
  EXPECT_EQ(metric(R"(strata_requests_total{endpoint="chat_completions",outcome="ok"})"), 1);
  const std::string text = get("/metrics").body;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    std::string_view line = std::string_view(text).substr(at, text.find('\n', at) - at);
    EXPECT_TRUE(line.starts_with('#') || line.starts_with("strata_") || line.starts_with("process_")) << line;
  }
}

// ---- clients that leave, wait, or do not read

TEST_F(GatewayTest, AClientThatLeavesEndsItsWorkInEveryPhaseAndNobodyElses) {
  settings_.gateway_queue_limit.set(4);
  engine_->set_sequences(1);
  start();
  double cancelled = 0;
  for (const char* more : {R"(,"stream":true,"max_tokens":3000)", R"(,"max_tokens":3000)"}) {
    engine_->set_script({.endless = true, .per_token = milliseconds(5)});
    const uint32_t before = engine_->cancelled();
    RawClient active(port_);
    active.request("POST", kChat, chat(more));
    ASSERT_TRUE(until([this] { return engine_->running() == 1; }));
    {
      RawClient queued(port_);
      queued.request("POST", kChat, chat(more));
      ASSERT_TRUE(until([this] { return metric(R"(strata_requests_waiting{class="default"})") == 1; }));
    }
    EXPECT_TRUE(until([this] { return metric(R"(strata_requests_waiting{class="default"})") == 0; }));
    EXPECT_EQ(engine_->running(), 1u) << "the queued client's leaving ended somebody else's answer";
    active.close();
    EXPECT_TRUE(until([this] { return engine_->running() == 0; }, seconds(5)));
    EXPECT_EQ(engine_->cancelled(), before + 1);

    engine_->set_script({.prefill = seconds(60)});
    RawClient reading(port_);
    reading.request("POST", kChat, chat(more));
    ASSERT_TRUE(until([this] { return engine_->running() == 1; }));
    reading.close();
    EXPECT_TRUE(until([this] { return engine_->running() == 0; }, seconds(5)));
    cancelled += 3;
    EXPECT_TRUE(until([&] {
      return metric(R"(strata_requests_total{endpoint="chat_completions",outcome="client_cancel"})") ==
             cancelled;
    }));
    EXPECT_TRUE(until([this] { return metric("strata_requests_running") == 0; }));
  }
  for (const char* phase : {"queued", "prefill", "decode"}) {
    EXPECT_EQ(metric(fmt::format(R"(strata_client_disconnects_total{{phase="{}"}})", phase)), 2) << phase;
  }
}

TEST_F(GatewayTest, OneTooManyGets429WhileTheQueuedGetCommentsAndAreServedLater) {
  settings_.gateway_queue_limit.set(1);
  settings_.gateway_keepalive_ms.set(100);
  engine_->set_sequences(1);
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  RawClient active(port_), queued(port_);
  active.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":3000)"));
  ASSERT_TRUE(active.read_until(kFirstPieces));
  queued.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":3)"));
  ASSERT_TRUE(queued.read_until(": queued, position 1"));
  RawResponse late = post(kChat, chat(R"(,"stream":true)"));
  EXPECT_EQ(late.status, 429);
  EXPECT_EQ(json(late).at("error").at("type"), "rate_limit_error");
  EXPECT_GE(std::stoi(late.headers["retry-after"]), 1);
  EXPECT_TRUE(until([this] { return get("/ready").status == 503; }));
  EXPECT_EQ(get("/health").status, 200);
  active.close();
  EXPECT_TRUE(queued.read_until("data: [DONE]"));
}

TEST_F(GatewayTest, ADeadlineMayStandInTheBodyOrInAHeaderAndTheShorterCounts) {
  engine_->set_sequences(1);
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  RawClient active(port_);
  active.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":100000)"));
  ASSERT_TRUE(active.read_until(kFirstPieces));
  RawResponse late = post(kChat, chat(R"(,"timeout_ms":600000)"), "X-Timeout-Ms: 30\r\n");
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(json(late).at("error").at("code"), "deadline_exceeded");
  EXPECT_EQ(post(kChat, chat(R"(,"timeout_ms":30)"), "X-Timeout-Ms: 600000\r\n").status, 504);
  late = post("/v1/messages",
              R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hi"}],"timeout_ms":30})");
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(json(late).at("error").at("type"), "timeout_error");
  EXPECT_EQ(metric(R"(strata_http_responses_total{code="504"})"), 3);
  for (const char* header : {"X-Timeout-Ms: soon\r\n", "X-Timeout-Ms: 0\r\n"})
    EXPECT_EQ(post(kChat, chat(), header).status, 400);
  EXPECT_EQ(post(kChat, chat(R"(,"timeout_ms":0)")).status, 400);
  EXPECT_EQ(post(kChat, chat(R"(,"priority":"high")")).status, 400);
}

TEST_F(GatewayTest, AClientThatDoesNotReadIsCutOff) {
  start();
  engine_->set_context(1'000'000);
  ASSERT_TRUE(until([this] { return json(get("/props")).at("context_length") == 1'000'000; }));
  engine_->set_script({.endless = true});
  RawClient client(port_, /*receive_buffer_bytes=*/4096);
  client.request("POST", kChat, chat(R"(,"stream":true)"));
  EXPECT_TRUE(until([this] { return engine_->cancelled() == 1; }, seconds(60)));
  EXPECT_TRUE(until([this] {
    return metric(R"(strata_requests_total{endpoint="chat_completions",outcome="client_cancel"})") == 1;
  }));
}

TEST_F(GatewayTest, ASilentPromptGetsHeadersAtOnceAndComments) {
  settings_.gateway_keepalive_ms.set(100);
  start();
  engine_->set_script({.prefill = milliseconds(700)});
  RawClient client(port_);
  client.request("POST", kChat, chat(R"(,"stream":true)"));
  ASSERT_TRUE(client.read_until(": keep-alive"));
  EXPECT_EQ(client.received().find(kFirstPieces), std::string::npos);
  EXPECT_TRUE(client.read_until("data: [DONE]"));
}

// ---- an engine that comes and goes

TEST_F(GatewayTest, AnAnswerGoesOnWhenTheEngineDiesInTheMiddle) {
  start();
  engine_->set_script({.per_token = milliseconds(60)});
  RawClient client(port_);
  client.request("POST", kChat, chat(R"(,"stream":true,"seed":5)"));
  ASSERT_TRUE(client.read_until(kFirstPieces));
  engine_->die();
  EXPECT_TRUE(until([this] { return get("/ready").status == 503; }));
  engine_->start();
  RawResponse response = client.response();
  EXPECT_EQ(streamed(response.body), "A violin is a small stringed instrument.");
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  ASSERT_EQ(engine_->seen().size(), 2u);
  EXPECT_FALSE(engine_->seen()[1].generated_tokens.empty());
  EXPECT_EQ(engine_->seen()[1].seed, 5u);
  EXPECT_EQ(metric("strata_request_resubmissions_total"), 1);
}

TEST_F(GatewayTest, WhileTheModelLoadsItSaysSoAndRequestsWaitUnlessTheyDoNotWantTo) {
  engine_->set_ready(false);
  start(/*wait=*/false);
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(get("/ready").status, 503);
  engine_->start();
  EXPECT_TRUE(until([this] { return get("/health").body == R"({"status":"loading","progress":0.42})"; }));
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(json(get("/v1/models")).at("data").at(0).at("status"), "loading");
  RawResponse impatient = post(kChat, chat(), "X-No-Wait: 1\r\n");
  EXPECT_EQ(impatient.status, 503);
  EXPECT_EQ(json(impatient).at("error").at("code"), "model_loading");
  EXPECT_TRUE(impatient.headers.contains("retry-after"));
  RawClient patient(port_);
  patient.request("POST", kChat, chat(R"(,"stream":true)"));
  ASSERT_TRUE(patient.read_until(": queued"));
  engine_->set_ready(true);
  EXPECT_TRUE(patient.read_until("data: [DONE]"));
}

TEST_F(GatewayTest, StoppingRefusesTheNewAndCutsOffTheRunningInTime) {
  settings_.supervisor_drain_ms.set(300);
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  RawClient client(port_);
  client.request("POST", kChat, chat(R"(,"stream":true)"));
  ASSERT_TRUE(client.read_until(kFirstPieces));
  const auto begin = std::chrono::steady_clock::now();
  std::thread stop([this] { gateway_->drain_and_stop(); });
  EXPECT_TRUE(client.read_until("data: [DONE]"));
  EXPECT_NE(client.received().find("shutting_down"), std::string::npos);
  stop.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(4));
  EXPECT_TRUE(until([this] { return engine_->running() == 0; }, seconds(5)));
}

TEST_F(GatewayTest, AnAddressInUseIsAStartUpFaultThatNamesIt) {
  start();
  settings_.gateway_listen.set(fmt::format("127.0.0.1:{}", port_));
  auto second = Gateway::start({.settings = &settings_, .run_dir = run_dir_, .config_hash = ""});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find(settings_.gateway_listen()), std::string::npos);
  settings_.model_path.set({"/nowhere/nosuch.gguf"});
  auto third = Gateway::start({.settings = &settings_, .run_dir = run_dir_, .config_hash = ""});
  ASSERT_FALSE(third);
  EXPECT_NE(third.error().message().find("nosuch.gguf"), std::string::npos);
}

// ---- HTTP itself

TEST_F(GatewayTest, KeepsConnectionsAndAnswersPipelinedRequestsInOrder) {
  start();
  RawClient client(port_);
  const std::string body = chat();
  client.send(fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}"
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n",
      kChat, body.size(), body));
  EXPECT_EQ(content(client.response()), "A violin is a small stringed instrument.");
  EXPECT_EQ(json(client.response()).at("object"), "list");
  EXPECT_EQ(client.response().status, 404);
  client.request("POST", kChat, chat(R"(,"stream":true)"));
  EXPECT_TRUE(client.response().body.ends_with("[DONE]\n\n"));
  client.request("GET", "/health");
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(GatewayTest, LineEndsInFrontOfARequestAreDropped) {
  start();
  RawClient client(port_);
  for (int i = 0; i < 2; ++i) {
    client.send("\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n");
    EXPECT_EQ(client.response().status, 200);
  }
}

TEST_F(GatewayTest, TakesChunkedBodiesAndExpectContinue) {
  start();
  const std::string body = chat();
  RawClient chunked(port_);
  chunked.send(
      fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", kChat));
  for (std::size_t at = 0; at < body.size(); at += 7) {
    std::string piece = body.substr(at, 7);
    chunked.send(fmt::format("{:x};ext=1\r\n{}\r\n", piece.size(), piece));
  }
  chunked.send("0\r\nX-Trailer: 1\r\n\r\n");
  EXPECT_EQ(chunked.response().status, 200);
  chunked.request("GET", "/health");
  EXPECT_EQ(chunked.response().status, 200) << "out of step";

  RawClient expecting(port_);
  expecting.send(
      fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
                  kChat, body.size()));
  EXPECT_EQ(expecting.response().status, 100);
  expecting.send(body);
  EXPECT_EQ(expecting.response().status, 200);
}

TEST_F(GatewayTest, OldClientsAreNotToldToContinue) {
  start();
  RawClient client(port_);
  const std::string body = chat();
  client.send(fmt::format("POST {} HTTP/1.0\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n{}", kChat,
                          body.size(), body));
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(GatewayTest, OneConnectionTooManyIsClosedUntilAnotherEnds) {
  settings_.gateway_connections_max.set(16);
  start();
  const auto served = [this](RawClient& client) {
    client.request("GET", "/live");
    return client.read_until("200 OK");
  };
  std::vector<std::unique_ptr<RawClient>> open;
  // The polls of start() may not have been noticed to be gone yet.
  ASSERT_TRUE(until([&] {
    auto client = std::make_unique<RawClient>(port_);
    if (served(*client)) open.push_back(std::move(client));
    return open.size() == 16;
  }));
  RawClient one_more(port_);
  EXPECT_TRUE(one_more.closed());
  EXPECT_EQ(one_more.received(), "");
  EXPECT_TRUE(served(*open.front())) << "the others are not disturbed";
  open.pop_back();
  EXPECT_TRUE(until([&] {
    RawClient next(port_);
    return served(next);
  }));
}

TEST_F(GatewayTest, OldClientsGetBodiesThatEndWithTheConnection) {
  start();
  for (const char* version_and_headers : {"1.0\r\n", "1.1\r\nHost: localhost\r\nConnection: close\r\n"}) {
    RawClient client(port_);
    const std::string body = chat(R"(,"stream":true)");
    client.send(fmt::format("POST {} HTTP/{}Content-Length: {}\r\n\r\n{}", kChat, version_and_headers,
                            body.size(), body));
    EXPECT_TRUE(client.response().body.ends_with("data: [DONE]\n\n"));
    EXPECT_TRUE(client.closed());
  }
}

TEST_F(GatewayTest, MalformedRequestsGetAnErrorAndTheConnectionEnds) {
  settings_.gateway_body_bytes_max.set(4096);
  start();
  struct Case {
    std::string bytes;
    int status;
  };
  std::string many_headers;
  for (int i = 0; i < 80; ++i) many_headers += fmt::format("X-{}: {}\r\n", i, std::string(1000, 'y'));
  const std::vector<Case> cases = {
      {"GARBAGE\r\n\r\n", 400},
      {"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nbad header\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
       "chunked\r\n\r\nzz\r\nhello\r\n",
       400},
      {fmt::format("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Big: {}\r\n\r\n", std::string(70'000, 'x')),
       431},
      {fmt::format("GET /health HTTP/1.1\r\nHost: localhost\r\n{}\r\n", many_headers), 431},
      {fmt::format(
           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0;x={}",
           std::string(300'000, 'y')),
       431},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{", 413},
      {fmt::format(
           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n{}",
           std::string(5000, 'x')),
       413},
  };
  for (const Case& bad : cases) {
    RawClient client(port_);
    client.send(bad.bytes);
    RawResponse response = client.response();
    EXPECT_EQ(response.status, bad.status) << bad.bytes.substr(0, 60);
    EXPECT_TRUE(json(response).at("error").as_object().contains("message"));
    EXPECT_FALSE(response.headers["x-request-id"].empty());
    client.stop_sending();
    EXPECT_TRUE(client.closed()) << bad.bytes.substr(0, 60);
  }
  RawClient messages(port_);
  messages.send("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{");
  EXPECT_EQ(json(messages.response()).at("error").at("type"), "request_too_large");
  RawClient no_host(port_);
  no_host.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(no_host.response().status, 400);
  RawClient truncated(port_);
  truncated.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{\"prompt\":");
  truncated.stop_sending();
  EXPECT_EQ(truncated.response().status, 400);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(GatewayTest, SlowSendersAndIdleConnectionsAreCut) {
  settings_.gateway_idle_timeout_ms.set(1000);
  settings_.gateway_request_timeout_ms.set(1000);
  start();
  RawClient idle(port_), slow_head(port_), slow_body(port_);
  slow_head.send("GET /health HTTP/1.1\r\nX-Slow: ");
  slow_body.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{\"model\":");
  EXPECT_TRUE(slow_head.closed());
  EXPECT_TRUE(slow_body.closed());
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(get("/health").status, 200);
}

}  // namespace
}  // namespace strata::gateway
