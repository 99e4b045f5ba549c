#include "services/grammar/tool_calls.h"

#include <gtest/gtest.h>

#include "services/grammar/free_text.h"
#include "services/grammar/test_support.h"

namespace strata::grammar {
namespace {

constexpr int32_t kOpen = 256, kClose = 257, kEnd = 258;

// Bytes, and the special tokens that the models have.
std::shared_ptr<const Vocabulary> tool_vocabulary() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* special : {"<tool_call>", "</tool_call>", "</s>"}) texts.emplace_back(special);
  return vocabulary_of(texts);
}

const std::vector<Tool>& tools() {
  static const std::vector<Tool> kTools = {
      {"get_weather",
       R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7},
           "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"]})"},
      {"now", ""},
      {"search",
       R"({"properties": {"tags": {"type": "array", "items": {"type": "string"}},
           "code": {"type": "string", "pattern": "^[A-Z]{2}$"}},
                     "required": ["tags", "code"]})"},
  };
  return kTools;
}

// "[" and "]" around a name stand for the special tokens: "[open]" and "[close]".
Match read(const ToolCallRules& made, std::string_view text) {
  Matcher matcher(compiled(made.rules, tool_vocabulary()));
  while (!text.empty()) {
    int32_t token = static_cast<uint8_t>(text[0]);
    std::size_t bytes = 1;
    if (text.starts_with("[open]")) {
      token = kOpen;
      bytes = 6;
    } else if (text.starts_with("[close]")) {
      token = kClose;
      bytes = 7;
    }
    if (!matcher.accept(token)) return Match::kNo;
    text.remove_prefix(bytes);
  }
  return matcher.is_complete() ? Match::kWhole : Match::kPrefix;
}

ToolCallRules rules_with(ToolCallOptions options) {
  auto made = rules_of_tools(tools(), options);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(*made);
}

constexpr std::string_view kWeather =
    "[open]\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3, \"unit\": "
    "\"C\"}}\n[close]";
constexpr std::string_view kNow = "[open]\n{\"name\": \"now\", \"arguments\": {}}\n[close]";

TEST(ToolCalls, AutoIsTextThatACallMayEnd) {
  const ToolCallRules made = rules_with({.choice = ToolChoice::kAuto});
  for (const std::string& text :
       {std::string(), std::string("Hello, \n{\"é\": <tool>}"), std::string(kWeather), std::string(kNow),
        fmt::format("I look.\n{}", kWeather), fmt::format("{}\n{}", kNow, kWeather)}) {
    EXPECT_EQ(read(made, text), Match::kWhole) << text;
  }
  EXPECT_EQ(read(made, "[open]\n{\"name\": \"get_"), Match::kPrefix);
  EXPECT_EQ(read(made, "[open]Hello"), Match::kNo);
  EXPECT_EQ(read(made, "[open]\n{\"name\": \"other"), Match::kNo);
  EXPECT_EQ(read(made, "[open]\n{\"name\": \"now\", \"arguments\": {\"a"), Match::kNo);
  EXPECT_EQ(read(made, "[open]\n{\"name\": \"get_weather\", \"arguments\": {\"city\": 5"), Match::kNo);
  EXPECT_EQ(read(made, fmt::format("{} and text", kNow)), Match::kNo);
  EXPECT_EQ(read(made, "text[close]"), Match::kNo);
}

// Rule A6: only the token is a mark.
TEST(ToolCalls, AMarkSpelledInOrdinaryTokensIsText) {
  const ToolCallRules made = rules_with({.choice = ToolChoice::kAuto});
  for (const char* text : {"<tool_call> is a mark", "<tool_call>\n{\"name\": 7}</tool_call>", "<tool_call"}) {
    EXPECT_EQ(read(made, text), Match::kWhole) << text;
  }
  EXPECT_EQ(read(made, "<tool_call[open]\n"), Match::kPrefix);
  EXPECT_EQ(read(made, "<tool_call>[open]\nx"), Match::kNo);
}

TEST(ToolCalls, RequiredIsACallAndNothingElse) {
  const ToolCallRules made = rules_with({.choice = ToolChoice::kRequired});
  EXPECT_EQ(read(made, kWeather), Match::kWhole);
  EXPECT_EQ(read(made, fmt::format("{}\n{}\n{}", kNow, kNow, kWeather)), Match::kWhole);
  EXPECT_EQ(read(made, ""), Match::kPrefix);
  EXPECT_EQ(read(made, "Hello"), Match::kNo);
  EXPECT_EQ(read(made, "<tool_call>"), Match::kNo) << "the token, where there is one";
}

TEST(ToolCalls, NamedIsThatTool) {
  const ToolCallRules made = rules_with({.choice = ToolChoice::kNamed, .named = "now"});
  EXPECT_EQ(read(made, kNow), Match::kWhole);
  EXPECT_EQ(read(made, "[open]\n{\"name\": \"g"), Match::kNo);
}

TEST(ToolCalls, NotParallelIsOneCall) {
  for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired}) {
    const ToolCallRules made = rules_with({.choice = choice, .parallel = false});
    EXPECT_EQ(read(made, kNow), Match::kWhole);
    EXPECT_EQ(read(made, fmt::format("{}\n", kNow)), Match::kNo);
  }
}

TEST(ToolCalls, ParametersForm) {
  const ToolCallRules made = rules_with({.format = ToolFormat::kParameters, .choice = ToolChoice::kRequired});
  const std::string_view weather =
      "[open]\n<function=get_weather>\n<parameter=city>\nSão "
      "\"Paulo\"\n</param\n\n</parameter>\n<parameter=days>\n3\n"
      "</parameter>\n<parameter=unit>\nF\n</parameter>\n</function>\n[close]";
  EXPECT_EQ(read(made, weather), Match::kWhole);
  EXPECT_EQ(
      read(made, "[open]\n<function=get_weather>\n<parameter=city>\n\n</parameter>\n</function>\n[close]"),
      Match::kWhole);
  EXPECT_EQ(read(made, "[open]\n<function=get_weather>\n</function>"), Match::kNo) << "city is required";
  EXPECT_EQ(
      read(made, "[open]\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n<parameter=days>\n8"),
      Match::kNo);
  EXPECT_EQ(
      read(made, "[open]\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n<parameter=unit>\n\"C"),
      Match::kNo);
  EXPECT_EQ(read(made, "[open]\n<function=now>\n</function>\n[close]"), Match::kWhole);
  EXPECT_EQ(
      read(made,
           "[open]\n<function=search>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n<parameter=code>\nAB\n"
           "</parameter>\n</function>\n[close]"),
      Match::kWhole);
  EXPECT_EQ(
      read(made, "[open]\n<function=search>\n<parameter=tags>\n[\"a\"]\n</parameter>\n<parameter=code>\nab"),
      Match::kNo);
}

TEST(ToolCalls, WhatIsNotUnderstoodIsRefusedOrLetThrough) {
  std::vector<Tool> odd = {{"odd", R"({"properties": {"a": {"type": "string", "pattern": "\\bx"}}})"},
                           {"now", ""}};
  for (const ToolFormat format : {ToolFormat::kJson, ToolFormat::kParameters}) {
    odd[0].strict = true;
    const auto refused = rules_of_tools(odd, {.format = format});
    odd[0].strict = false;
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message().find("tool \"odd\": schema at #/properties/a: \"pattern\""),
              std::string::npos)
        << refused.error().message();
    const auto made = rules_of_tools(odd, {.format = format});
    ASSERT_TRUE(made.has_value());
    ASSERT_EQ(made->warnings.size(), 1U);
    EXPECT_NE(made->warnings[0].find("odd"), std::string::npos);
    const std::string_view call =
        format == ToolFormat::kJson
            ? "[open]\n{\"name\": \"odd\", \"arguments\": {\"a\": 1, \"b\": []}}\n[close]"
            : "[open]\n<function=odd>\n<parameter=a>\n1\n</parameter>\n</function>\n[close]";
    EXPECT_EQ(read(*made, call), Match::kWhole);
  }
}

TEST(ToolCalls, FaultsNameTheTool) {
  const auto message = [](const std::vector<Tool>& list, ToolCallOptions options = {}) {
    const auto made = rules_of_tools(list, options);
    return made ? std::string("accepted") : made.error().message();
  };
  EXPECT_EQ(message({}), "tools: there are none");
  EXPECT_NE(message({{"a b", ""}}).find("\"a b\" is no name"), std::string::npos);
  EXPECT_NE(message({{std::string(129, 'a'), ""}}).find("is no name"), std::string::npos);
  EXPECT_NE(message({{"", ""}}).find("is no name"), std::string::npos);
  EXPECT_EQ(message({{"a", ""}, {"a", ""}}), "tools: \"a\" is there twice");
  EXPECT_EQ(message({{"a", ""}}, {.choice = ToolChoice::kNamed, .named = "b"}),
            "tool_choice: \"b\" is not one of the tools");
  EXPECT_EQ(message({{"mcp:files/read-1.x", ""}}), "accepted");
  EXPECT_NE(
      message({{"a", R"({"type": "string"})", true}}).find("tool \"a\": schema at #: \"type\" of arguments"),
      std::string::npos);
  EXPECT_NE(message({{"a", "{", true}}).find("tool \"a\": schema: not JSON"), std::string::npos);
  EXPECT_NE(message({{"a", "[]", true}}).find("tool \"a\": schema at #: arguments are an object"),
            std::string::npos);
  const ToolCallOptions parameters{.format = ToolFormat::kParameters};
  EXPECT_NE(message({{"a", R"({"anyOf": [{"type": "object"}]})", true}}, parameters)
                .find("\"anyOf\" of all arguments"),
            std::string::npos);
  EXPECT_NE(message({{"a", R"({"properties": {"x>y": {}}})", true}}, parameters)
                .find("cannot stand in <parameter=...>"),
            std::string::npos);
}

TEST(ToolCalls, ReferencesInParameters) {
  const std::vector<Tool> list = {
      {"a", R"({"properties": {"p": {"$ref": "#/$defs/p"}, "q": {"$ref": "#/$defs/q"}},
      "required": ["p", "q"], "$defs": {"p": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
      "q": {"type": "string"}}})"}};
  const auto made =
      rules_of_tools(list, {.format = ToolFormat::kParameters, .choice = ToolChoice::kRequired});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(read(*made,
                 "[open]\n<function=a>\n<parameter=p>\n{\"x\": "
                 "1}\n</parameter>\n<parameter=q>\nany\n</parameter>\n</function>\n[close]"),
            Match::kWhole);
}

TEST(ToolCalls, TheFormIsTheTemplates) {
  EXPECT_EQ(tool_format_of_template("...<tool_call>\n{\"name\": ..."), ToolFormat::kJson);
  EXPECT_EQ(tool_format_of_template("...<tool_call>\n<function=example>..."), ToolFormat::kParameters);
}

TEST(ToolCalls, WithoutTheTokensTheirSpellingCounts) {
  const ToolCallRules made = rules_with({.choice = ToolChoice::kRequired});
  const auto grammar = compiled(made.rules);
  EXPECT_TRUE(matches(grammar, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
}

// Markers that begin again inside themselves.
TEST(FreeText, EndsAtTheFirstMarker) {
  for (const std::string marker : {"aab", "aaa", "abab", "abcabd", "<"}) {
    Rules rules;
    const RuleId root = rules.add_rule("root");
    rules.define(root, add_free_text(rules, {.marker = marker, .behind = rules.bytes("!")}));
    rules.set_root(root);
    const auto grammar = compiled(rules);
    std::vector<std::string> texts = {""};
    for (std::size_t i = 0; texts[i].size() < 7; ++i) {
      for (const char c : {'a', 'b', '<'}) texts.push_back(texts[i] + c);
    }
    for (const std::string& text : texts) {
      const bool first_at_end =
          text.size() >= marker.size() && text.find(marker) == text.size() - marker.size();
      ASSERT_EQ(matches(grammar, text + "!"), first_at_end) << marker << " in " << text;
      ASSERT_FALSE(matches(grammar, text));
    }
  }
}

}  // namespace
}  // namespace strata::grammar
