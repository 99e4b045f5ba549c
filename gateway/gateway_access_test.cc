// Who is let in: API keys, pages of other origins, and how several keys share the cluster; over real sockets.

#include <gmock/gmock.h>

#include <fstream>

#include "gateway/conversations/conversation_types.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using ::testing::AllOf;
using testing::chat;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::kChat;
using ::testing::Key;
using testing::kFirstPieces;
using ::testing::Not;
using ::testing::Pair;
using testing::RawClient;
using testing::RawResponse;
using ::testing::StartsWith;

constexpr const char* kOne = "Authorization: Bearer key-one\r\n";
constexpr const char* kTwo = "x-api-key: key-two\r\n";

class AccessTest : public testing::GatewayTest {
 protected:
  void use_keys() { ASSERT_TRUE(settings_.gateway_api_keys.parse("[key-one, key-two]").ok()); }
  void use_origin() { ASSERT_TRUE(settings_.gateway_cors_origins.parse("https://app.example").ok()); }
  RawResponse send(std::string_view method, std::string_view path, std::string_view headers) {
    RawClient client(port_);
    client.request(method, path, {}, headers);
    return client.response();
  }
};

TEST_F(AccessTest, EveryPathButHealthWantsOneOfTheKeys) {
  use_keys();
  start();
  for (const char* path : {"/", "/v1/models", "/metrics", "/props", "/v1/nothing"}) {
    RawResponse refused = get(path);
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_THAT(refused.headers["www-authenticate"], StartsWith("Bearer")) << path;
    EXPECT_EQ(json(refused).at("error").at("code"), "invalid_api_key");
    for (const char* key : {kOne, kTwo}) EXPECT_NE(send("GET", path, key).status, 401) << path;
  }
  for (const char* path : {"/live", "/health", "/v1/health", "/ready"})
    EXPECT_EQ(get(path).status, 200) << path;
  EXPECT_EQ(post(kChat, chat()).status, 401);
  EXPECT_EQ(post(kChat, chat(), "x-api-key: key-on\r\n").status, 401);
  RawResponse message = post("/v1/messages", "{}", "x-api-key: key-on\r\n");
  EXPECT_EQ(message.status, 401);
  EXPECT_EQ(json(message).at("error").at("type"), "authentication_error") << message.body;
  EXPECT_EQ(post(std::string(kChat) + "?api_key=key-one", chat()).status, 401);
  EXPECT_EQ(send("OPTIONS", kChat, "").status, 204) << "a preflight carries no key";
  EXPECT_TRUE(engine_->seen().empty());
  EXPECT_EQ(post(kChat, chat(), kOne).status, 200);
}

// The header of a request whose body is still to come.
std::string head(std::string_view path, std::string_view headers, std::string_view host = "127.0.0.1") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\n{}\r\n", path, host, headers);
}

TEST_F(AccessTest, WithoutAKeyNoBodyIsWaitedFor) {
  use_keys();
  start();
  for (const char* framing : {"Content-Length: 10000000\r\n", "Transfer-Encoding: chunked\r\n"}) {
    RawClient client(port_);
    client.send(head(kChat, framing));
    RawResponse refused = client.response();
    EXPECT_EQ(refused.status, 401) << framing;
    EXPECT_EQ(refused.headers["connection"], "close") << framing;
    EXPECT_TRUE(client.closed()) << framing;
  }
  const std::string metrics = send("GET", "/metrics", kOne).body;
  EXPECT_THAT(metrics, HasSubstr("\nstrata_http_responses_total{code=\"401\"} 2\n"));
  EXPECT_THAT(
      metrics,
      HasSubstr("\nstrata_requests_total{endpoint=\"chat_completions\",outcome=\"unauthorized\"} 2\n"));
}

TEST_F(AccessTest, AClientThatSendsItsWholeBodyFirstCanReadTheRefusal) {
  use_keys();
  start();
  RawClient client(port_);
  const std::string body(8 << 20, 'x');
  client.request("POST", kChat, body);
  EXPECT_EQ(client.response().status, 401);
  EXPECT_TRUE(client.closed());
}

TEST_F(AccessTest, BehindAShortRefusedBodyTheConnectionGoesOn) {
  use_keys();
  start();
  RawClient client(port_);
  const std::string body = chat();
  for (int i = 0; i < 2; ++i) {
    client.send(head(kChat, fmt::format("Content-Length: {}\r\n", body.size())));
    RawResponse refused = client.response();
    EXPECT_EQ(refused.status, 401);
    EXPECT_FALSE(refused.headers.contains("connection"));
    client.send(body);
  }
  client.request("POST", kChat, body, kOne);
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(AccessTest, WhatTheHeaderDecidesIsSaidInsteadOfContinue) {
  use_keys();
  start();
  constexpr const char* kExpect = "Content-Length: 200\r\nExpect: 100-continue\r\n";
  struct Case {
    std::string head;
    int status;
  };
  const Case cases[] = {
      {head(kChat, kExpect), 401},
      {head(kChat, std::string(kExpect) + "x-api-key: wrong\r\n"), 401},
      {head(kChat, std::string(kExpect) + kOne, "evil.example"), 403},
      {head(kChat, std::string(kExpect) + kOne + "Origin: https://evil.example\r\n"), 403},
      {head("/v1/nothing", std::string(kExpect) + kOne), 404},
      {head("/v1/models", std::string(kExpect) + kOne), 405},
      {head(kChat, std::string(kOne) + "Content-Length: 99999999999\r\nExpect: 100-continue\r\n"), 413},
      {head(kChat, std::string(kExpect) + kOne + "Content-Type: text/plain\r\n"), 415},
  };
  for (const Case& c : cases) {
    RawClient client(port_);
    client.send(c.head);
    RawResponse refused = client.response();
    EXPECT_EQ(refused.status, c.status) << c.head;
    EXPECT_EQ(refused.headers["connection"], "close") << "the body may still come: " << c.head;
    EXPECT_TRUE(client.closed()) << c.head;
  }
  EXPECT_TRUE(engine_->seen().empty());
}

TEST_F(AccessTest, ARightKeyIsToldToContinue) {
  use_keys();
  start();
  RawClient client(port_);
  const std::string body = chat();
  client.send(
      head(kChat, fmt::format("{}Content-Length: {}\r\nExpect: 100-Continue\r\n", kOne, body.size())));
  EXPECT_EQ(client.response().status, 100);
  client.send(body);
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(AccessTest, KeysOfTheFileCountToo) {
  const std::string path = run_dir_ + "/keys";
  std::ofstream(path) << config::hash_secret("key-three").text() << "\n";
  settings_.gateway_api_keys_file.set({path});
  use_keys();
  start();
  EXPECT_EQ(get("/v1/models").status, 401);
  EXPECT_EQ(send("GET", "/v1/models", "x-api-key: key-three\r\n").status, 200);
  EXPECT_EQ(send("GET", "/v1/models", kOne).status, 200);
}

TEST_F(AccessTest, AKeyFileThatCannotBeReadIsAStartUpFault) {
  settings_.gateway_api_keys_file.set({run_dir_ + "/missing"});
  auto started = Gateway::start({.settings = &settings_, .run_dir = run_dir_});
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message(), AllOf(HasSubstr("gateway.api_keys_file"), HasSubstr("/missing")));
}

TEST_F(AccessTest, OneKeyNeverGoesOnFromWhatAnotherHasSent) {
  use_keys();
  start();
  for (const char* key : {kOne, kTwo, kOne}) ASSERT_EQ(post(kChat, chat(), key).status, 200);
  const auto seen = engine_->seen();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].name_space, key_namespace(config::hash_secret("key-one").text()).bytes());
  EXPECT_EQ(seen[1].name_space, key_namespace(config::hash_secret("key-two").text()).bytes());
  EXPECT_EQ(seen[2].name_space, seen[0].name_space);
  for (const auto& call : seen) EXPECT_EQ(call.shared_prompt_tokens, 0u) << "unless the operator says so";
}

// With what would have been found under another key, so that finding nothing means something.
TEST_F(AccessTest, APrefixIsFoundUnderItsOwnKeyOnlyAndTheOtherIsToldNothingOfIt) {
  use_keys();
  start();
  const auto ask = [this](std::string_view more, const char* key) {
    constexpr std::string_view kText =
        "one two three four five six seven eight nine ten eleven twelve "
        "thirteen fourteen fifteen sixteen seventeen eighteen";
    RawResponse response =
        post("/v1/completions", fmt::format(R"({{"prompt":"{}{}","max_tokens":1}})", kText, more), key);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.headers["x-strata-reuse"];
  };
  ask("", kOne);
  ASSERT_TRUE(until([&] { return engine_->states() == 1; }));
  const std::string other = ask(" and more", kTwo);
  EXPECT_THAT(other, AllOf(HasSubstr("reused=0 "), HasSubstr("not_more=new at=0"))) << other;
  EXPECT_EQ(engine_->seen().back().reused_tokens, 0u);
  const std::string own = ask(" and less", kOne);
  EXPECT_THAT(own, Not(HasSubstr("reused=0 "))) << own;
  EXPECT_GT(engine_->seen().back().reused_tokens, 16u);
}

TEST_F(AccessTest, AKeyThatFloodsDoesNotHoldUpAnother) {
  use_keys();
  engine_->set_sequences(1);
  settings_.gateway_keepalive_ms.set(100);
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  const std::string body = chat(R"(,"stream":true,"max_tokens":3000)");
  RawClient active(port_), second(port_), third(port_), other(port_);
  active.request("POST", kChat, body, kOne);
  ASSERT_TRUE(active.read_until(kFirstPieces));
  second.request("POST", kChat, body, kOne);
  ASSERT_TRUE(second.read_until(": queued, position 1"));
  third.request("POST", kChat, body, kOne);
  ASSERT_TRUE(third.read_until(": queued, position 2"));
  other.request("POST", kChat, body, kTwo);
  ASSERT_TRUE(other.read_until(": queued, position 1"));
  ASSERT_TRUE(third.read_until(": queued, position 3")) << "moved back by the other key's turn";
  active.close();
  EXPECT_TRUE(other.read_until(kFirstPieces));
  EXPECT_THAT(second.received(), Not(HasSubstr(kFirstPieces)));
}

TEST_F(AccessTest, AKeyOverItsLimitGets429AndOthersDoNot) {
  use_keys();
  settings_.gateway_requests_per_key.set(1);
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  RawClient active(port_);
  active.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":3000)"), kOne);
  ASSERT_TRUE(active.read_until(kFirstPieces));
  RawResponse late = post(kChat, chat(R"(,"max_tokens":2)"), kOne);
  EXPECT_EQ(late.status, 429);
  EXPECT_EQ(json(late).at("error").at("code"), "key_limit");
  EXPECT_GE(std::stoi(late.headers["retry-after"]), 1);
  EXPECT_EQ(post(kChat, chat(R"(,"max_tokens":2)"), kTwo).status, 200);
  active.close();
  EXPECT_TRUE(until([&] { return post(kChat, chat(R"(,"max_tokens":2)"), kOne).status == 200; }));
}

TEST_F(AccessTest, WithoutKeysTheLimitOfAKeyMeansNothing) {
  settings_.gateway_requests_per_key.set(1);
  start();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  RawClient active(port_);
  active.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":3000)"));
  ASSERT_TRUE(active.read_until(kFirstPieces));
  EXPECT_EQ(post(kChat, chat(R"(,"max_tokens":2)"), "x-api-key: any\r\n").status, 200);
}

TEST_F(AccessTest, PagesOfAConfiguredOriginMayAskAndReadAlsoErrors) {
  use_origin();
  use_keys();
  start();
  const std::string origin = "Origin: https://app.example\r\n";
  RawResponse preflight = send("OPTIONS", kChat,
                               origin +
                                   "Access-Control-Request-Method: POST\r\n"
                                   "Access-Control-Request-Headers: content-type, x-api-key\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers["access-control-allow-origin"], "https://app.example");
  EXPECT_EQ(preflight.headers["access-control-allow-headers"], "content-type, x-api-key");
  EXPECT_THAT(preflight.headers["access-control-allow-methods"], HasSubstr("POST"));
  EXPECT_EQ(preflight.headers["vary"], "Origin");

  RawResponse stream = post(kChat, chat(R"(,"stream":true)"), origin + kOne);
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.headers["access-control-allow-origin"], "https://app.example");
  for (RawResponse error : {post(kChat, "{", origin + kOne), post(kChat, chat(), origin),
                            send("GET", "/v1/nothing", origin + kOne)}) {
    EXPECT_GE(error.status, 400);
    EXPECT_EQ(error.headers["access-control-allow-origin"], "https://app.example") << error.status;
  }
}

TEST_F(AccessTest, OtherPagesGetNothingTheyCouldRead) {
  use_origin();
  start();
  for (const char* origin : {"https://evil.example", "null", "https://app.example.evil.example"}) {
    const std::string header = std::string("Origin: ") + origin + "\r\n";
    RawResponse preflight = send("OPTIONS", kChat, header + "Access-Control-Request-Method: POST\r\n");
    EXPECT_THAT(preflight.headers, Not(Contains(Key(StartsWith("access-control"))))) << origin;
    RawResponse models = send("GET", "/v1/models", header);
    EXPECT_THAT(models.headers, Not(Contains(Key(StartsWith("access-control"))))) << origin;
    EXPECT_THAT(models.headers, Contains(Pair("vary", "Origin"))) << "a cache would mix them up";
    EXPECT_EQ(post(kChat, chat(), header).status, 403) << origin;
  }
  EXPECT_EQ(
      send("GET", "/v1/models", "Origin: https://app.example\r\n").headers["access-control-allow-origin"],
      "https://app.example");
}

}  // namespace
}  // namespace strata::gateway
