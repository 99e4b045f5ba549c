#include "gateway/http/cors.h"

#include <gmock/gmock.h>

#include "gateway/http/request_guard.h"

namespace strata::gateway {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Pair;

constexpr const char* kApp = "https://app.example";

HttpRequest from(std::string origin, std::vector<std::pair<std::string, std::string>> more = {}) {
  HttpRequest request{.method = "POST", .target = "/v1/completions", .headers = {{"host", "localhost"}}};
  if (!origin.empty()) request.headers.emplace_back("origin", std::move(origin));
  for (auto& header : more) request.headers.push_back(std::move(header));
  return request;
}

TEST(CorsTest, WithoutOriginsThereIsNoHeader) {
  Cors none({});
  EXPECT_THAT(none.response_headers(from(kApp)), IsEmpty());
  EXPECT_THAT(none.preflight_headers(from(kApp, {{"access-control-request-method", "POST"}})), IsEmpty());
}

TEST(CorsTest, NamesTheAllowedOriginAndNoOther) {
  Cors cors({kApp, "http://localhost:3000"});
  for (const char* origin : {kApp, "http://localhost:3000"}) {
    auto headers = cors.response_headers(from(origin));
    EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Origin", origin)));
    EXPECT_THAT(headers, Contains(Pair("Vary", "Origin")));
    EXPECT_THAT(headers, Contains(Key("Access-Control-Expose-Headers")));
  }
  for (const char* origin : {"", "https://evil.example", "null", "https://app.example.evil.example",
                             "http://app.example", "https://app.example:8443", "https://app.example/"}) {
    EXPECT_THAT(cors.response_headers(from(origin)), ElementsAre(Pair("Vary", "Origin"))) << origin;
    EXPECT_THAT(cors.preflight_headers(from(origin, {{"access-control-request-method", "POST"}})), IsEmpty())
        << origin;
  }
}

TEST(CorsTest, APreflightGetsTheHeadersThatItAskedFor) {
  Cors cors({kApp});
  const std::string wanted = "content-type, x-stainless-os, " + std::string(400, 'x');
  auto headers = cors.preflight_headers(
      from(kApp, {{"access-control-request-method", "POST"}, {"access-control-request-headers", wanted}}));
  EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Headers", wanted)));
  EXPECT_THAT(headers, Contains(Key("Access-Control-Allow-Methods")));
  EXPECT_THAT(headers, Contains(Key("Access-Control-Max-Age")));
  EXPECT_THAT(cors.preflight_headers(from(kApp)), IsEmpty()) << "OPTIONS that is no preflight";
}

TEST(CorsTest, TheGuardLetsAllowedPagesSendAndStillLooksAtTheHost) {
  RequestGuard guard("127.0.0.1", Cors({kApp}));
  EXPECT_FALSE(guard.check(from(kApp)));
  EXPECT_EQ(guard.check(from("https://evil.example"))->status, 403u);
  HttpRequest rebound = from(kApp);
  rebound.headers[0].second = "evil.example";
  EXPECT_EQ(guard.check(rebound)->status, 403u) << "a name that was pointed here";
  EXPECT_EQ(guard.check_body_form(from(kApp))->status, 415u) << "only JSON from a page";
  EXPECT_FALSE(guard.check_body_form(from(kApp, {{"content-type", "application/json"}})));
}

}  // namespace
}  // namespace strata::gateway
