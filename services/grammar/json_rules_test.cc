#include "services/grammar/json_rules.h"

#include <gtest/gtest.h>

#include "services/grammar/json_schema.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

TEST(AnyObject, IsAnyJsonObject) {
  const auto grammar = compiled(rules_of_any_object());
  for (const std::string_view text :
       {"{}", "{ }", "{\"a\":1}", "{\"a\": [1, -2.5e10, \"x\", null, true, {\"b\": {}}]}",
        "{\n    \"é\": \"\\u00e9\\n\"\n}", "{\"\": 0.125}", "{\"\\ud83d\\ude00\": \"😀\"}",
        "{\"a\": \"\x7F/\\/\"}"}) {
    EXPECT_TRUE(matches(grammar, text)) << text;
  }
  for (const std::string_view text : {"",
                                      "[]",
                                      "1",
                                      "{",
                                      "{,}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":+1}",
                                      "{\"a\":nul}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":\"\\x\"}",
                                      "{\"a\":\"\\ud800\"}",
                                      "{\"a\":\"\\ude00\"}",
                                      "{\"a\":1}}",
                                      "{\"a\":[1 2]}",
                                      "{\"a\":\"\xFF\"}",
                                      "{}  {}",
                                      "{\"a\":1e999}"}) {
    EXPECT_FALSE(matches(grammar, text)) << text;
  }
  EXPECT_EQ(match(grammar, "{   "), Match::kNo) << "white space is bounded";
}

TEST(Whitespace, IsWhereItMayBe) {
  const std::string_view schema =
      R"({"properties": {"a": {"type": "array", "items": {"type": "null"}}}, "required": ["a"]})";
  const auto none = compiled(*rules_of_schema(schema, Whitespace::kNone));
  const auto single = compiled(*rules_of_schema(schema, Whitespace::kSingle));
  const auto flexible = compiled(*rules_of_schema(schema, Whitespace::kFlexible));
  const std::string_view compact = "{\"a\":[null,null]}", spaced = "{\"a\": [null, null]}";
  const std::string_view lines = "{\n  \"a\": [\n    null,\n    null\n  ]\n}";
  EXPECT_TRUE(matches(none, compact) && matches(single, compact) && matches(flexible, compact));
  EXPECT_TRUE(!matches(none, spaced) && matches(single, spaced) && matches(flexible, spaced));
  EXPECT_TRUE(!matches(none, lines) && !matches(single, lines) && matches(flexible, lines));
}

TEST(JsonQuoted, EscapesWhatMustBe) {
  EXPECT_EQ(json_quoted("a\"b\\c\n\t\x01é/"), "\"a\\\"b\\\\c\\n\\t\\u0001é/\"");
  EXPECT_EQ(json_quoted(""), "\"\"");
}

}  // namespace
}  // namespace strata::grammar
