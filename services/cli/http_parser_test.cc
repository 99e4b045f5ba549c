#include "services/cli/http_parser.h"

#include <gtest/gtest.h>

namespace strata::cli {
namespace {

// The response in one piece and byte by byte must come out the same.
HttpResponse parse(std::string_view text, std::string* streamed = nullptr) {
  HttpResponse first;
  for (std::size_t step : {text.size(), std::size_t{1}}) {
    std::string data;
    HttpParser parser(streamed == nullptr ? OnData() : [&](std::string_view piece) { data += piece; });
    for (std::size_t at = 0; at < text.size(); at += step)
      EXPECT_TRUE(parser.feed(text.substr(at, step)).ok());
    if (!parser.complete()) {
      EXPECT_TRUE(parser.end().ok());
    }
    HttpResponse response = parser.take();
    if (step == text.size()) {
      first = response;
    } else {
      EXPECT_EQ(response.body, first.body);
    }
    if (streamed != nullptr) *streamed = data;
  }
  return first;
}

TEST(HttpParser, ReadsABodyWithALength) {
  HttpResponse response = parse("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nX-Thing:  a b \r\n\r\nhello");
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.body, "hello");
  EXPECT_EQ(response.headers["x-thing"], "a b");
}

TEST(HttpParser, ReadsChunks) {
  std::string streamed;
  parse(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7;x=y\r\n, world\r\n0\r\nA: "
      "b\r\n\r\n",
      &streamed);
  EXPECT_EQ(streamed, "hello, world");
}

TEST(HttpParser, ReadsUntilTheEndOfTheConnection) {
  EXPECT_EQ(parse("HTTP/1.0 200 OK\r\n\r\nall of it").body, "all of it");
}

TEST(HttpParser, StreamsOnlyGoodAnswers) {
  std::string streamed;
  HttpResponse response = parse("HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nbusy", &streamed);
  EXPECT_EQ(streamed, "");
  EXPECT_EQ(response.body, "busy");
}

TEST(HttpParser, SkipsInterimAnswersAndKnowsEmptyOnes) {
  EXPECT_EQ(parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").body, "ok");
  EXPECT_EQ(parse("HTTP/1.1 204 No Content\r\n\r\n").status, 204);
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").status, 200);
}

TEST(HttpParser, RefusesWhatIsNotHttp) {
  for (const char* bad : {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"}) {
    HttpParser parser({});
    EXPECT_FALSE(parser.feed(bad).ok()) << bad;
  }
  HttpParser endless({});
  EXPECT_FALSE(endless.feed(std::string(100000, 'x')).ok());
}

TEST(HttpParser, NoticesACutAnswer) {
  HttpParser parser({});
  ASSERT_TRUE(parser.feed("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").ok());
  EXPECT_FALSE(parser.end().ok());
}

TEST(ParseUrl, ReadsHostPortAndPath) {
  auto url = parse_url("http://127.0.0.1:8080/base/");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->path, "/base");
  url = parse_url("http://[::1]:9");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 9);
  EXPECT_EQ(parse_url("http://host")->port, 80);
  EXPECT_FALSE(parse_url("http://host")->tls);
  EXPECT_EQ(parse_url("https://host")->port, 443);
  EXPECT_TRUE(parse_url("https://host:8443")->tls);
  EXPECT_EQ(parse_url("https://host:8443")->port, 8443);
  for (const char* bad : {"ftp://host", "https://", "host:80", "http://", "http://host:99999", "http://host:x", ""}) {
    EXPECT_FALSE(parse_url(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace strata::cli
