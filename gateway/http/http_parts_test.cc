// Routing, who may call, and the framing of responses; no sockets.

#include <gtest/gtest.h>

#include "gateway/http/exchange.h"
#include "gateway/http/request_guard.h"
#include "gateway/http/routes.h"

namespace strata::gateway {
namespace {

TEST(RoutesTest, LooksAtThePathOnlyAndToleratesOneTrailingSlash) {
  for (const char* target : {"/v1/models", "/v1/models/", "/v1/models?x=1", "/v1/models/?x=1&y"}) {
    auto match = find_route("GET", target);
    ASSERT_TRUE(match) << target;
    EXPECT_EQ(match->route, Route::kModels);
  }
  EXPECT_EQ(find_route("POST", "/v1/chat/completions/?beta=true")->route, Route::kChatCompletions);
  EXPECT_EQ(find_route("HEAD", "/health")->route, Route::kHealth);
  EXPECT_EQ(find_route("GET", "/")->route, Route::kIndex);
  for (const char* target : {"//v1/models", "/v1//models", "/V1/models", "/nothing", "/v1/chat", "*", ""}) {
    auto match = find_route("GET", target);
    ASSERT_FALSE(match) << target;
    EXPECT_EQ(match.error().error.status, 404u) << target;
  }
}

TEST(RoutesTest, DecodesModelIdsWithSlashesAndPercents) {
  EXPECT_EQ(find_route("GET", "/v1/models/org/name:7b")->name, "org/name:7b");
  EXPECT_EQ(find_route("GET", "/v1/models/org%2Fname")->name, "org/name");
  EXPECT_EQ(find_route("GET", "/v1/models/50%")->name, "50%");
  EXPECT_EQ(find_route("GET", "/v1/models/a%zz")->name, "a%zz");
}

TEST(RoutesTest, WrongMethodsNameTheRightOnes) {
  auto get = find_route("GET", "/v1/chat/completions");
  ASSERT_FALSE(get);
  EXPECT_EQ(get.error().error.status, 405u);
  EXPECT_EQ(get.error().allow, "POST, OPTIONS");
  EXPECT_EQ(find_route("DELETE", "/v1/models").error().allow, "GET, HEAD, OPTIONS");
  EXPECT_EQ(find_route("PUT", "/v1/completions").error().error.status, 405u);
}

TEST(RoutesTest, PartsOfTheApiThatAreNotThereSaySo) {
  for (const char* target :
       {"/v1/embeddings", "/v1/audio/speech", "/v1/images/generations", "/v1/moderations", "/rerank",
        "/v1/responses/compact", "/v1/responses/input_tokens", "/v1/messages/batches"}) {
    auto match = find_route("POST", target);
    ASSERT_FALSE(match) << target;
    EXPECT_EQ(match.error().error.status, 501u);
    EXPECT_EQ(match.error().error.type, "not_supported_error");
    EXPECT_NE(match.error().error.message.find(request_path(target)), std::string::npos);
  }
}

TEST(RoutesTest, NamesInPathsArePartsOfThem) {
  const auto items = find_route("GET", "/v1/responses/resp%5F1/input_items/?limit=3");
  ASSERT_TRUE(items);
  EXPECT_EQ(items->route, Route::kResponseItems);
  EXPECT_EQ(items->name, "resp_1");
  EXPECT_EQ(find_route("DELETE", "/v1/responses/a")->route, Route::kDeleteResponse);
  EXPECT_EQ(find_route("HEAD", "/v1/responses/a")->route, Route::kResponse);
  EXPECT_EQ(find_route("PUT", "/v1/responses/a").error().allow, "GET, HEAD, DELETE, OPTIONS");
  for (const char* none : {"/v1/responses/a/b", "/v1/responses//input_items", "/v1/responses/a/b/cancel"})
    EXPECT_EQ(find_route("GET", none).error().error.status, 404u) << none;
  for (const ServedRoute& served : served_routes()) {
    std::string path(served.path);
    if (const std::size_t open = path.find('{'); open != std::string::npos)
      path.replace(open, path.find('}') - open + 1, "name");
    const auto match = find_route(served.method, path);
    ASSERT_TRUE(match) << path;
    EXPECT_EQ(match->route, served.route) << path;
  }
}

TEST(RoutesTest, QueriesHaveValues) {
  EXPECT_EQ(query_value("/a?limit=3&after=b%20c", "after"), "b c");
  EXPECT_EQ(query_value("/a?limit=3&limit=4", "limit"), "3");
  EXPECT_EQ(query_value("/a?limit", "limit"), "");
  EXPECT_EQ(query_value("/a?limits=3", "limit"), std::nullopt);
  EXPECT_EQ(query_value("/a", "limit"), std::nullopt);
  EXPECT_EQ(query_value("/a?", "limit"), std::nullopt);
}

TEST(RoutesTest, Case35MessagesAreFoundWithTheirQueryAndHaveErrorsOfTheirOwn) {
  EXPECT_EQ(find_route("POST", "/v1/messages?beta=true")->route, Route::kMessages);
  EXPECT_EQ(find_route("POST", "/v1/messages/count_tokens/?beta=true")->route, Route::kCountTokens);
  for (const char* target :
       {"/v1/messages?x", "/v1/messages/", "/v1/messages/count_tokens", "/v1/messages/no"}) {
    EXPECT_EQ(dialect_of(target), Dialect::kAnthropic) << target;
  }
  for (const char* target : {"/v1/chat/completions", "/v1/messagesx", "/"}) {
    EXPECT_EQ(dialect_of(target), Dialect::kOpenAi) << target;
  }
  EXPECT_EQ(error_response({.message = "no", .param = "x"}, Dialect::kAnthropic).body,
            R"({"type":"error","error":{"type":"invalid_request_error","message":"no"}})");
  const std::pair<uint32_t, const char*> kTypes[] = {{401, "authentication_error"},
                                                     {403, "permission_error"},
                                                     {404, "not_found_error"},
                                                     {413, "request_too_large"},
                                                     {429, "rate_limit_error"},
                                                     {500, "api_error"},
                                                     {501, "api_error"},
                                                     {503, "overloaded_error"}};
  for (const auto& [status, type] : kTypes) {
    EXPECT_NE(error_json({.status = status, .message = ""}, Dialect::kAnthropic).find(type),
              std::string::npos);
  }
}

HttpRequest post(std::vector<std::pair<std::string, std::string>> headers) {
  return {.method = "POST", .target = "/v1/completions", .headers = std::move(headers)};
}

TEST(RequestGuardTest, OnALoopbackAddressTheHostMustBeThisMachine) {
  RequestGuard guard("127.0.0.1");
  for (const char* host : {"127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.0.0.1"}) {
    EXPECT_FALSE(guard.check(post({{"host", host}}))) << host;
  }
  for (const char* host : {"evil.example:8080", "127.0.0.1.evil.example", "", "10.0.0.1:8080"}) {
    auto error = guard.check(post({{"host", host}}));
    ASSERT_TRUE(error) << host;
    EXPECT_EQ(error->status, 403u);
  }
  EXPECT_FALSE(RequestGuard("0.0.0.0").check(post({{"host", "box.lan:8080"}})));
}

TEST(RequestGuardTest, WantsExactlyOneHostButFromOldClients) {
  RequestGuard guard("127.0.0.1");
  EXPECT_EQ(guard.check(post({}))->status, 400u);
  EXPECT_EQ(guard.check(post({{"host", "localhost"}, {"host", "evil"}}))->status, 400u);
  HttpRequest old = post({});
  old.http_1_0 = true;
  EXPECT_FALSE(guard.check(old));
}

TEST(RequestGuardTest, RefusesForeignPages) {
  RequestGuard guard("127.0.0.1");
  auto with = [](const char* origin) {
    return post({{"host", "localhost:8080"}, {"origin", origin}, {"content-type", "application/json"}});
  };
  EXPECT_FALSE(guard.check(with("http://localhost:8080")));
  for (const char* origin :
       {"https://evil.example", "null", "http://localhost:3000", "http://localhost:8080.evil.example"}) {
    ASSERT_TRUE(guard.check(with(origin))) << origin;
    EXPECT_EQ(guard.check(with(origin))->status, 403u);
  }
  EXPECT_TRUE(guard.check(with("https://localhost:8080"))) << "another origin, where http is spoken";
  const RequestGuard tls("127.0.0.1", Cors({}), "https");
  EXPECT_FALSE(tls.check(with("https://localhost:8080")));
  EXPECT_TRUE(tls.check(with("http://localhost:8080")));
  HttpRequest get = with("https://evil.example");
  get.method = "GET";
  EXPECT_FALSE(guard.check(get)) << "without CORS headers the page cannot read the answer";
}

TEST(RequestGuardTest, TakesJsonAndFromProgramsAlsoNothingAndCurlsDefault) {
  RequestGuard guard("127.0.0.1");
  auto typed = [](const char* type) { return post({{"host", "localhost"}, {"content-type", type}}); };
  EXPECT_FALSE(guard.check_body_form(post({{"host", "localhost"}})));
  for (const char* type :
       {"application/json", "Application/JSON; charset=utf-8", "application/x-www-form-urlencoded"}) {
    EXPECT_FALSE(guard.check_body_form(typed(type))) << type;
  }
  EXPECT_EQ(guard.check_body_form(typed("text/plain"))->status, 415u);
  EXPECT_EQ(guard.check_body_form(post({{"origin", "http://localhost:1"}}))->status, 415u);
  EXPECT_EQ(guard.check_body_form(post({{"content-encoding", "gzip"}}))->status, 415u);
}

TEST(RequestGuardTest, BehindAnOpenAddressOnlyNamesThatNobodyElseHandsOutAreOurOwnPages) {
  RequestGuard guard("0.0.0.0");
  auto from = [&](const std::string& name) {
    return guard.check(post({{"host", name + ":8080"}, {"origin", "http://" + name + ":8080"}}));
  };
  for (const char* own : {"192.168.1.5", "[fd00::1]", "localhost"}) EXPECT_FALSE(from(own)) << own;
  EXPECT_EQ(from("evil.example")->status, 403u) << "a name that was pointed here";
}

TEST(ListenAddressTest, ReadsHostAndPort) {
  EXPECT_EQ(parse_listen("127.0.0.1:8080")->port, 8080);
  EXPECT_EQ(parse_listen("[::1]:0")->host, "::1");
  for (const char* bad :
       {"", "8080", "localhost", ":8080", "localhost:", "localhost:x", "localhost:70000", "[::1:80"}) {
    EXPECT_FALSE(parse_listen(bad)) << bad;
  }
}

class ExchangeTest : public ::testing::Test {
 protected:
  Exchange make(HttpRequest request) {
    request.id = "r1";
    return Exchange(std::move(request), [this] { ++wakes_; });
  }
  static std::string all(Exchange& exchange) { return exchange.take_buffer(SIZE_MAX); }
  int wakes_ = 0;
};

TEST_F(ExchangeTest, AWholeResponseHasItsLengthAndTheRequestId) {
  Exchange exchange = make({.method = "GET"});
  exchange.respond({.status = 404, .body = "{}"});
  EXPECT_EQ(all(exchange),
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nX-Request-Id: r1\r\nContent-Length: "
            "2\r\n\r\n{}");
  EXPECT_TRUE(exchange.finished());
  EXPECT_EQ(wakes_, 1);
}

TEST_F(ExchangeTest, TheRequestIdHasTheNameThatTheDialectsClientsKnow) {
  Exchange messages = make({.method = "POST", .target = "/v1/messages?beta=true"});
  messages.respond({.body = "{}"});
  EXPECT_NE(all(messages).find("\r\nRequest-Id: r1\r\n"), std::string::npos);
  Exchange chat = make({.method = "POST", .target = "/v1/chat/completions"});
  chat.respond({.body = "{}"});
  EXPECT_EQ(all(chat).find("\r\nRequest-Id:"), std::string::npos);
}

TEST_F(ExchangeTest, HeadGetsTheHeadersOfGetAndNoBody) {
  Exchange exchange = make({.method = "HEAD"});
  exchange.respond({.body = "{}"});
  const std::string out = all(exchange);
  EXPECT_NE(out.find("Content-Length: 2\r\n"), std::string::npos);
  EXPECT_TRUE(out.ends_with("\r\n\r\n"));
}

TEST_F(ExchangeTest, AStreamIsChunkedAndForOldClientsEndsWithTheConnection) {
  Exchange modern = make({.method = "POST"});
  modern.start_stream({.content_type = "text/event-stream"});
  all(modern);
  modern.write("data: x\n\n");
  EXPECT_EQ(all(modern), "9\r\ndata: x\n\n\r\n");
  modern.finish();
  EXPECT_EQ(all(modern), "0\r\n\r\n");
  EXPECT_FALSE(modern.close_after());

  Exchange old = make({.method = "POST", .http_1_0 = true});
  old.start_stream({.content_type = "text/event-stream"});
  EXPECT_EQ(all(old).find("chunked"), std::string::npos);
  old.write("data: x\n\n");
  old.finish();
  EXPECT_EQ(all(old), "data: x\n\n");
  EXPECT_TRUE(old.close_after());
}

TEST_F(ExchangeTest, TellsOnceThatTheClientIsGoneAndForgetsWhatWasForIt) {
  Exchange exchange = make({.method = "POST"});
  int gone = 0;
  exchange.on_client_gone([&gone] { ++gone; });
  exchange.start_stream({});
  exchange.set_client_gone();
  exchange.set_client_gone();
  exchange.write("late");
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(exchange.buffered_bytes(), 0u);
}

TEST_F(ExchangeTest, HandsOutALargeResponseInSlices) {
  Exchange exchange = make({.method = "GET"});
  exchange.respond({.body = std::string(1000, 'x')});
  std::string out;
  for (std::string slice = exchange.take_buffer(64); !slice.empty(); slice = exchange.take_buffer(64)) {
    EXPECT_LE(slice.size(), 64u);
    out += slice;
  }
  EXPECT_TRUE(out.ends_with(std::string(1000, 'x')));
}

}  // namespace
}  // namespace strata::gateway
