#include "gateway/api/json_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "gateway/api/utf8.h"

namespace strata::gateway {
namespace {

TEST(JsonTextTest, PrintsNumbersAsPeopleWriteThem) {
  EXPECT_EQ(to_json(boost::json::parse("[0.1, 1e-7, 100.0, 1e300, -0.5, 3, 18446744073709551615]")),
            "[0.1,1e-07,100,1e+300,-0.5,3,18446744073709551615]");
  EXPECT_EQ(number_text(0.6f), "0.6");
}

TEST(JsonTextTest, StaysOnOneLineAndEscapesWhatJsonDemands) {
  boost::json::object object;
  object["a\"b"] = "line\nnext\t\x01\\ \x7f é";
  EXPECT_EQ(to_json(object), R"({"a\"b":"line\nnext\t\u0001\\ \u007f é"})");
}

TEST(JsonTextTest, RefusesBytesThatAreNotUtf8AndLoneSurrogates) {
  for (const char* body :
       {"{\"a\":\"\xff\xfe\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xe2\x82\"}", "{\"\xc0\x80\":1}",
        R"({"a":"\ud800"})", R"({"a":"a\udc00b"})", R"({"a":"\ud83d\u0041"})"}) {
    EXPECT_FALSE(parse_body(body)) << body;
  }
  auto emoji = parse_body(R"({"a":"\ud83d\ude00"})");
  ASSERT_TRUE(emoji);
  EXPECT_EQ(to_json(emoji->at("a")), "\"😀\"");
}

TEST(JsonTextTest, RefusesBrokenBodiesAndEverythingButAnObject) {
  for (const char* body : {"", "{", "[]", "\"text\"", "null", "{'a':1}", "{\"a\":1} x", "{\"a\":NaN}",
                           "{\"a\":01}", "{\"a\":1,}"}) {
    auto parsed = parse_body(body);
    ASSERT_FALSE(parsed) << body;
    EXPECT_EQ(parsed.error().status, 400u);
    EXPECT_EQ(parsed.error().type, "invalid_request_error");
  }
}

TEST(JsonTextTest, BoundsTheDepthAndTakesTheLastOfDuplicateKeys) {
  auto nested = [](int depth) {
    const auto size = static_cast<std::size_t>(depth);
    return fmt::format(R"({{"a":{}{}}})", std::string(size, '['), std::string(size, ']'));
  };
  EXPECT_TRUE(parse_body(nested(100)));
  EXPECT_FALSE(parse_body(nested(200)));
  EXPECT_FALSE(parse_body(nested(100000)));
  EXPECT_EQ(parse_body(R"({"a":1,"a":2})")->at("a"), 2);
}

TEST(JsonTextTest, SnippetsAreShortWholeAndHarmless) {
  const std::string text = snippet(std::string(200, 'x') + "<script>");
  EXPECT_EQ(text, fmt::format("\"{}\"...", std::string(64, 'x')));
  std::string long_characters;
  for (int i = 0; i < 100; ++i) long_characters += "é";
  EXPECT_EQ(count_characters(snippet(long_characters)), 64u + 5u);
  EXPECT_EQ(snippet("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(snippet("a\xff"), "\"a\xef\xbf\xbd\"");
}

TEST(Utf8Test, ReplacesEachMaximalWrongPieceByOneCharacter) {
  EXPECT_EQ(to_valid_utf8("aé😀"), "aé😀");
  EXPECT_EQ(to_valid_utf8("a\xff"
                          "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(to_valid_utf8("\xe2\x82"), "\xef\xbf\xbd");
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(to_valid_utf8("\xf0\x9f\x98x"), "\xef\xbf\xbdx");
  EXPECT_EQ(to_valid_utf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace strata::gateway
