// What answers the grammar of a request lets through, read with the demo model's own tokens.

#include "gateway/service/answer_grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway/api/json_text.h"
#include "gateway/api/utf8.h"
#include "gateway/generation/test_tokenizer.h"
#include "services/grammar/matcher.h"

namespace strata::gateway {
namespace {

using grammar::ToolFormat;

const AnswerGrammars& grammars(ToolFormat format = ToolFormat::kJson) {
  static const AnswerGrammars json = *AnswerGrammars::create(test_tokenizer(), ToolFormat::kJson);
  static const AnswerGrammars parameters = *AnswerGrammars::create(test_tokenizer(), ToolFormat::kParameters);
  return format == ToolFormat::kJson ? json : parameters;
}

AnswerForm schema(std::string source) {
  return {.kind = AnswerForm::Kind::kSchema, .source = std::move(source), .param = "response_format"};
}

Tools tools(std::string_view fields) {
  auto body = parse_body(fmt::format("{{{}}}", fields));
  EXPECT_TRUE(body) << fields;
  FieldReader reader(*body);
  Tools read = read_tools(reader);
  EXPECT_FALSE(reader.failed()) << (reader.failed() ? reader.error().value().message : "");
  return read;
}

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string"}},"required":["city"]}}},)"
    R"({"type":"function","function":{"name":"get_time"}}])";
constexpr const char* kWeather =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
constexpr const char* kTime = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";

enum class Fits { kNo, kBegins, kWhole };

// text: special spellings are special tokens, as in an answer.
Fits read(const AnswerGrammar& made, std::string_view text) {
  static const auto vocabulary = *grammar::Vocabulary::from_tokenizer(test_tokenizer());
  auto compiled = grammar::Grammar::from_gbnf(made.gbnf, vocabulary);
  EXPECT_TRUE(compiled) << compiled.error().message();
  grammar::Matcher matcher(*compiled);
  for (const int32_t token : test_tokenizer().encode_trusted(text)) {
    if (!matcher.accept(token)) return Fits::kNo;
  }
  return matcher.is_complete() ? Fits::kWhole : Fits::kBegins;
}

AnswerGrammar made(const AnswerForm& form, const Tools& tools, bool call_begun = false,
                   BeforeAnswer before = BeforeAnswer::kNothing, ToolFormat format = ToolFormat::kJson) {
  auto grammar = grammars(format).make(form, tools, call_begun, before);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return grammar ? std::move(*grammar) : AnswerGrammar{};
}

TEST(AnswerGrammarTest, AFreeAnswerHasNone) {
  EXPECT_EQ(made({}, {}).gbnf, "");
  EXPECT_EQ(made({}, tools(fmt::format(R"({},"tool_choice":"none")", kTools))).gbnf, "");
}

TEST(AnswerGrammarTest, FormsAreHeldToFromTheFirstToken) {
  const AnswerGrammar object = made({.kind = AnswerForm::Kind::kObject, .param = "response_format"}, {});
  EXPECT_EQ(read(object, R"({"a": [1, "b"]})"), Fits::kWhole);
  for (const char* text : {"[1]", "7", "\n{", "Sure: {", "{} and"})
    EXPECT_EQ(read(object, text), Fits::kNo) << text;

  const AnswerGrammar number = made(schema(R"({"type":"integer","minimum":1,"maximum":5})"), {});
  EXPECT_EQ(read(number, "3"), Fits::kWhole);
  EXPECT_EQ(read(number, "9"), Fits::kNo);

  const AnswerGrammar word = made(
      {.kind = AnswerForm::Kind::kGrammar, .source = "root ::= \"yes\" | \"no\"", .param = "grammar"}, {});
  EXPECT_EQ(read(word, "yes"), Fits::kWhole);
  EXPECT_EQ(read(word, "maybe"), Fits::kNo);
}

TEST(AnswerGrammarTest, BehindOpenThinkingLineEndsMayComeFirst) {
  const AnswerGrammar grammar = made(schema(R"({"const":7})"), {}, false, BeforeAnswer::kOpenThinking);
  for (const char* text : {"7", "\n7", "\n\n7"}) EXPECT_EQ(read(grammar, text), Fits::kWhole) << text;
  EXPECT_EQ(read(grammar, "\n\n\n7"), Fits::kNo);
  EXPECT_EQ(read(grammar, "<think>"), Fits::kNo);
}

TEST(AnswerGrammarTest, AModelMayOpenItsThinkingByItselfUnlessItIsOff) {
  const AnswerGrammar may = made(schema(R"({"const":7})"), {}, false, BeforeAnswer::kOwnThinking);
  EXPECT_EQ(read(may, "7"), Fits::kWhole);
  EXPECT_EQ(read(may, "<think>\nSeven, {\"or\n so.\n</think>\n\n7"), Fits::kWhole);
  EXPECT_EQ(read(may, "<think>\nSeven.\n</think>\n\n8"), Fits::kNo);
  EXPECT_EQ(read(may, "7<think>"), Fits::kNo);
  EXPECT_EQ(read(made(schema(R"({"const":7})"), {}), "<think>"), Fits::kNo);
}

TEST(AnswerGrammarTest, ToolsAreHeldToTheirSchemasFromTheMarkOn) {
  const AnswerGrammar automatic = made({}, tools(kTools));
  for (const std::string& text : {std::string("Hello, {\"x\": <b>}."), std::string(kWeather),
                                  fmt::format("I look.\n{}\n{}", kTime, kWeather)}) {
    EXPECT_EQ(read(automatic, text), Fits::kWhole) << text;
  }
  for (const char* text : {"<tool_call>Hello", "<tool_call>\n{\"name\": \"other\"",
                           "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": 5"}) {
    EXPECT_EQ(read(automatic, text), Fits::kNo) << text;
  }
  const AnswerGrammar one = made({}, tools(fmt::format(R"({},"parallel_tool_calls":false)", kTools)));
  EXPECT_EQ(read(one, kTime), Fits::kWhole);
  EXPECT_EQ(read(one, fmt::format("{}\n{}", kTime, kTime)), Fits::kNo);
}

TEST(AnswerGrammarTest, ForcedCallsAreNothingElse) {
  const AnswerGrammar required =
      made({}, tools(fmt::format(R"({},"tool_choice":"required")", kTools)), /*call_begun=*/true);
  EXPECT_EQ(read(required, fmt::format("{}\n{}", kWeather, kTime)), Fits::kWhole);
  EXPECT_EQ(read(required, "Hello"), Fits::kNo);
  const Tools named = tools(
      fmt::format(R"({},"tool_choice":{{"type":"function","function":{{"name":"get_time"}}}})", kTools));
  EXPECT_EQ(read(made({}, named, true), kTime), Fits::kWhole);
  EXPECT_EQ(read(made({}, named, true), kWeather), Fits::kNo);
  EXPECT_EQ(read(made({}, named, true), fmt::format("{}\n{}", kTime, kTime)), Fits::kNo);
}

TEST(AnswerGrammarTest, CallsInTheParametersForm) {
  const AnswerGrammar grammar =
      made({}, tools(kTools), false, BeforeAnswer::kNothing, ToolFormat::kParameters);
  EXPECT_EQ(read(grammar,
                 "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
                 "</tool_call>"),
            Fits::kWhole);
  EXPECT_EQ(read(grammar, kTime), Fits::kNo);
}

// Rule B21.
TEST(AnswerGrammarTest, WithAFormAndToolsTheAnswerIsOneOrTheOther) {
  const AnswerGrammar both =
      made(schema(R"({"const":7})"), tools(kTools), false, BeforeAnswer::kOpenThinking);
  EXPECT_EQ(read(both, "\n\n7"), Fits::kWhole);
  EXPECT_EQ(read(both, fmt::format("\n\n{}\n{}", kTime, kWeather)), Fits::kWhole);
  EXPECT_EQ(read(both, "I look."), Fits::kNo);
  EXPECT_EQ(read(both, fmt::format("7\n{}", kTime)), Fits::kNo);
  // A forced call is what the answer is.
  const AnswerGrammar forced =
      made(schema(R"({"const":7})"), tools(fmt::format(R"({},"tool_choice":"required")", kTools)), true);
  EXPECT_EQ(read(forced, kTime), Fits::kWhole);
  EXPECT_EQ(read(forced, "7"), Fits::kNo);
}

struct Refusal {
  AnswerForm form;
  const char* tools;
  const char* param;
  const char* says;
};

// Rule B18.
TEST(AnswerGrammarTest, WhatCannotBeHeldToIsRefusedByFieldKeywordAndPlace) {
  const std::string strict = R"("tools":[{"type":"function","function":{"name":"f","strict":true,)"
                             R"("parameters":{"properties":{"a":{"not":{}}}}}}])";
  const Refusal refusals[] = {
      {schema(R"({"properties":{"age":{"type":"integer","multipleOf":5}}})"), "", "response_format",
       R"(response_format: schema at #/properties/age: "multipleOf")"},
      {schema(R"({"type":"nothing"})"), "", "response_format", R"(schema at #: "type" must be)"},
      {schema(R"({"if":{}})"), kTools, "response_format", R"("if" is not supported)"},
      {{.kind = AnswerForm::Kind::kGrammar, .source = "root ::= \"a", .param = "grammar"},
       "",
       "grammar",
       "grammar: grammar, line 1"},
      {{.kind = AnswerForm::Kind::kGrammar, .source = "root ::= root \"a\"", .param = "grammar"},
       "",
       "grammar",
       "root"},
      {{.kind = AnswerForm::Kind::kGrammar, .source = "root ::= \"a\"", .param = "grammar"},
       kTools,
       "grammar",
       "exclude each other"},
      {{.kind = AnswerForm::Kind::kGrammar, .source = "root ::= <[999999]>", .param = "grammar"},
       "",
       "grammar",
       "999999"},
      {{}, strict.c_str(), "tools", R"(tool "f": schema at #/properties/a: "not" is not supported)"},
  };
  for (const Refusal& refusal : refusals) {
    auto grammar = grammars().make(refusal.form, tools(refusal.tools), false, BeforeAnswer::kNothing);
    ASSERT_FALSE(grammar) << refusal.says;
    EXPECT_EQ(grammar.error().status, 400u);
    EXPECT_EQ(grammar.error().param, refusal.param);
    EXPECT_NE(grammar.error().message.find(refusal.says), std::string::npos) << grammar.error().message;
  }
}

// Rule B20.
TEST(AnswerGrammarTest, AToolThatIsNotStrictTakesAnyArgumentsIfItsSchemaIsNotUnderstood) {
  const AnswerGrammar grammar =
      made({}, tools(R"("tools":[{"type":"function","function":{"name":"f",)"
                     R"("parameters":{"properties":{"a":{"type":"string","pattern":"\\bx"}}}}}])"));
  ASSERT_EQ(grammar.warnings.size(), 1u);
  EXPECT_NE(grammar.warnings[0].find("\"pattern\""), std::string::npos) << grammar.warnings[0];
  EXPECT_EQ(read(grammar, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": [1]}}\n</tool_call>"),
            Fits::kWhole);
  EXPECT_EQ(read(grammar, "<tool_call>\n{\"name\": \"g"), Fits::kNo);
}

TEST(AnswerGrammarTest, ToolsThatAreTogetherTooMuchStillWorkUnlessTheyAreStrict) {
  // Each a text of many states, together more than a grammar may have.
  std::string list;
  for (int i = 0; i < 100; ++i) {
    list += fmt::format(R"({}{{"type":"function","function":{{"name":"f{}","parameters":{{"properties":{{)",
                        i > 0 ? "," : "", i);
    for (int j = 0; j < 60; ++j) {
      list += fmt::format(R"({}"p{}":{{"type":"string","pattern":"^([a-z]{{1,9}}-){{1,9}}{}$"}})",
                          j > 0 ? "," : "", j, i * 60 + j);
    }
    list += "}}}}";
  }
  const AnswerGrammar grammar = made({}, tools(fmt::format(R"("tools":[{}])", list)));
  EXPECT_EQ(grammar.gbnf, "");
  ASSERT_EQ(grammar.warnings.size(), 1u);
  EXPECT_NE(grammar.warnings[0].find("not held to their schemas"), std::string::npos);
  Tools strict = tools(fmt::format(R"("tools":[{}])", list));
  strict.strict = {"f1"};
  EXPECT_FALSE(grammars().make({}, strict, false, BeforeAnswer::kNothing));
}

// Rules H10, I11: whatever names a schema has, what comes back is short and whole UTF-8.
TEST(AnswerGrammarTest, MessagesAboutLongNamesStayShort) {
  std::string name;
  for (int i = 0; i < 1000; ++i) name += "é";
  auto grammar = grammars().make(schema(fmt::format(R"({{"properties":{{"{}":{{"not":{{}}}}}}}})", name)), {},
                                 false, BeforeAnswer::kNothing);
  ASSERT_FALSE(grammar);
  EXPECT_LT(grammar.error().message.size(), 400u);
  EXPECT_NE(grammar.error().message.find("schema at #/properties/é"), std::string::npos);
  EXPECT_NE(grammar.error().message.find("\"not\" is not supported"), std::string::npos);
  EXPECT_EQ(to_valid_utf8(grammar.error().message), grammar.error().message);
}

TEST(AnswerGrammarTest, HostileSchemasEnd) {
  std::string deep = R"({"type":"integer"})";
  for (int i = 0; i < 120; ++i) deep = fmt::format(R"({{"type":"array","items":{}}})", deep);
  std::string wide = R"({"anyOf":[)";
  for (int i = 0; i < 3000; ++i)
    wide += fmt::format(R"({}{{"type":"string","maxLength":{}}})", i > 0 ? "," : "", i + 1);
  wide += "]}";
  for (const std::string& hostile : {deep, wide}) {
    auto grammar = grammars().make(schema(hostile), {}, false, BeforeAnswer::kNothing);
    if (grammar) {
      EXPECT_LT(grammar->gbnf.size(), std::size_t{1} << 20);
    } else {
      EXPECT_EQ(grammar.error().param, "response_format");
    }
  }
}

}  // namespace
}  // namespace strata::gateway
