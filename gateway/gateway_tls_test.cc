// A gateway that speaks https: what holds over http holds there, too, and what TLS adds.

#include <gmock/gmock.h>
#include <openssl/ssl.h>

#include <boost/json/serialize.hpp>

#include "gateway/testing/gateway_fixture.h"
#include "gateway/testing/tls_raw_client.h"
#include "services/sys/testing/test_certificate.h"

namespace strata::gateway {
namespace {

using testing::chat;
using ::testing::HasSubstr;
using testing::kChat;
using testing::kFirstPieces;
using testing::RawClient;
using testing::RawResponse;
using ::testing::StartsWith;
using testing::TlsOptions;
using testing::TlsRawClient;

class TlsTest : public testing::GatewayTest {
 protected:
  void SetUp() override {
    GatewayTest::SetUp();
    certificate_ = sys::testing::make_test_certificate(run_dir_, "server");
    settings_.gateway_tls_certificate.set({certificate_.certificate_path});
    settings_.gateway_tls_key.set({certificate_.key_path});
  }
  // The fixture's own questions go over http.
  void start_tls() {
    start(/*wait=*/false);
    engine_->start();
    ASSERT_TRUE(until([this] { return ask("GET", "/ready").status == 200; }));
  }
  TlsOptions trusting() const { return {.trusted = certificate_.certificate_path}; }
  RawResponse ask(std::string_view method, std::string_view path, std::string_view body = {}) {
    TlsRawClient client(port_, trusting());
    EXPECT_TRUE(client.connected());
    client.request(method, path, body);
    return client.response();
  }

  sys::testing::TestCertificate certificate_;
};

TEST_F(TlsTest, AnswersAndStreamsOnOneConnection) {
  start_tls();
  EXPECT_THAT(gateway_->address(), StartsWith("https://127.0.0.1:"));
  TlsRawClient client(port_, trusting());
  ASSERT_TRUE(client.connected());
  for (int i = 0; i < 2; ++i) {
    client.request("POST", kChat, chat());
    EXPECT_EQ(content(client.response()), "A violin is a small stringed instrument.");
    client.request("POST", kChat, chat(R"(,"stream":true)"));
    EXPECT_EQ(streamed(client.response().body), "A violin is a small stringed instrument.");
  }
}

TEST_F(TlsTest, BodiesOfManyRecordsArriveWhole) {
  start_tls();
  std::string words;
  for (int i = 0; i < 20'000; ++i) words += fmt::format("{} ", i);
  const RawResponse tokens = ask("POST", "/tokenize", fmt::format(R"({{"content":"{}"}})", words));
  ASSERT_EQ(tokens.status, 200);
  const auto ids = json(tokens).at("tokens").as_array();
  const RawResponse back =
      ask("POST", "/detokenize", fmt::format(R"({{"tokens":{}}})", boost::json::serialize(ids)));
  EXPECT_EQ(std::string_view(json(back).at("content").as_string()), words);
}

TEST_F(TlsTest, RequestsSentAheadAreAnsweredInTurn) {
  start_tls();
  TlsRawClient client(port_, trusting());
  client.send(
      "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
      "GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.response().status, 200);
  EXPECT_TRUE(client.closed());
}

TEST_F(TlsTest, NothingOlderThanTls12IsSpoken) {
  start_tls();
  EXPECT_FALSE(TlsRawClient(port_, {.version_max = TLS1_1_VERSION}).connected());
  EXPECT_EQ(TlsRawClient(port_, {.version_max = TLS1_2_VERSION}).version(), "TLSv1.2");
  EXPECT_EQ(TlsRawClient(port_, trusting()).version(), "TLSv1.3");
}

TEST_F(TlsTest, ClientsOfHttp2LearnThatThisIsHttp1) {
  start_tls();
  const TlsRawClient both(port_, {.protocols = std::string("\x02h2\x08http/1.1")});
  EXPECT_TRUE(both.connected());
  EXPECT_EQ(both.protocol(), "http/1.1");
  EXPECT_FALSE(TlsRawClient(port_, {.protocols = std::string("\x02h2")}).connected());
}

TEST_F(TlsTest, PlainHttpIsToldThatHttpsIsSpokenHere) {
  start_tls();
  RawClient client(port_);
  client.request("POST", kChat, chat());
  RawResponse refused = client.response();
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("https"));
  EXPECT_EQ(refused.headers["connection"], "close");
  client.close();
  EXPECT_EQ(ask("GET", "/live").status, 200);
  EXPECT_TRUE(engine_->seen().empty());
}

TEST_F(TlsTest, WhatIsNeitherHttpNorTlsIsEnded) {
  start_tls();
  RawClient client(port_);
  client.send(std::string("\x16\x03\x01\x00\x05hello, world", 17));
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(ask("GET", "/live").status, 200);
}

// Rule of slow clients: what they hold has an end.
TEST_F(TlsTest, AHandshakeThatDoesNotGoOnIsEnded) {
  handshake_timeout_ = milliseconds(100);
  start(/*wait=*/false);
  RawClient silent(port_), slow(port_);
  slow.send(std::string("\x16\x03\x01", 3));
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(slow.closed());
}

TEST_F(TlsTest, AClientThatLeavesIsNoticedWithAndWithoutAGoodbye) {
  start_tls();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  for (const bool politely : {false, true}) {
    const uint32_t before = engine_->cancelled();
    TlsRawClient client(port_, trusting());
    client.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":3000)"));
    ASSERT_TRUE(client.read_until(kFirstPieces));
    if (politely) {
      client.say_goodbye();
    } else {
      client.close();
    }
    EXPECT_TRUE(until([&] { return engine_->cancelled() == before + 1; })) << politely;
  }
}

TEST_F(TlsTest, EndsWithAGoodbyeSoThatNothingSeemsCutOff) {
  start_tls();
  for (const char* request :
       {"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n", "no HTTP at all\r\n\r\n"}) {
    TlsRawClient client(port_, trusting());
    client.send(request);
    EXPECT_TRUE(client.closed()) << request;
    EXPECT_THAT(client.received(), StartsWith("HTTP/1.1 ")) << request;
    EXPECT_TRUE(client.heard_goodbye()) << request;
  }
}

TEST_F(TlsTest, StoppingLetsAStreamEndWhole) {
  settings_.supervisor_drain_ms.set(200);
  start_tls();
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  TlsRawClient client(port_, trusting());
  client.request("POST", kChat, chat(R"(,"stream":true)"));
  ASSERT_TRUE(client.read_until(kFirstPieces));
  std::thread stop([this] { gateway_->drain_and_stop(); });
  EXPECT_TRUE(client.read_until("data: [DONE]"));
  EXPECT_THAT(client.received(), HasSubstr("shutting_down"));
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(client.heard_goodbye());
  stop.join();
}

TEST_F(TlsTest, ItsOwnPagesComeFromHttps) {
  start_tls();
  for (const auto& [scheme, status] : {std::pair("https", 200), std::pair("http", 403)}) {
    TlsRawClient client(port_, trusting());
    client.request("POST", kChat, chat(), fmt::format("Origin: {}://127.0.0.1\r\n", scheme));
    EXPECT_EQ(client.response().status, status) << scheme;
  }
}

TEST_F(TlsTest, TheMetricsSayWhenTheCertificateEnds) {
  start_tls();
  const std::string metrics = ask("GET", "/metrics").body;
  const std::size_t at = metrics.find("\nstrata_tls_certificate_expires_seconds ");
  ASSERT_NE(at, std::string::npos);
  const double ends = std::stod(metrics.substr(metrics.find(' ', at)));
  EXPECT_GT(ends, static_cast<double>(std::time(nullptr)));
}

TEST_F(TlsTest, ACertificateWithoutItsKeyIsAStartUpFault) {
  settings_.gateway_tls_key.set({});
  auto started = Gateway::start({.settings = &settings_, .run_dir = run_dir_, .config_hash = ""});
  ASSERT_FALSE(started);
  EXPECT_THAT(std::string(started.error().message()), HasSubstr("gateway.tls_key is not"));
}

TEST_F(TlsTest, ACertificateThatIsNotValidTodayIsUsedAllTheSame) {
  certificate_ = sys::testing::make_test_certificate(run_dir_, "server", {.valid_until_s = -60});
  start(/*wait=*/false);
  EXPECT_TRUE(TlsRawClient(port_, {}).connected());
  EXPECT_FALSE(TlsRawClient(port_, trusting()).connected()) << "clients refuse it";
}

}  // namespace
}  // namespace strata::gateway
