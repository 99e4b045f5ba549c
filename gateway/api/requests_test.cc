// What the two generation endpoints accept and refuse, as tables (api-cases 3 to 12, 15, 17 to 20, 24).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "gateway/api/chat_request.h"
#include "gateway/api/completion_request.h"
#include "gateway/api/json_text.h"

namespace strata::gateway {
namespace {

constexpr uint32_t kVocab = 8192;
constexpr const char* kUser = R"("messages":[{"role":"user","content":"hi"}])";

ApiResult<ChatRequest> chat(const std::string& fields) {
  auto body = parse_body(fmt::format("{{{}}}", fields));
  EXPECT_TRUE(body) << fields;
  return parse_chat_request(*body, kVocab);
}
ApiResult<ChatRequest> chat_with(const std::string& field) {
  return chat(fmt::format("{},{}", kUser, field));
}

ApiResult<CompletionRequest> completion(const std::string& fields) {
  auto body = parse_body(fmt::format("{{{}}}", fields));
  EXPECT_TRUE(body) << fields;
  return parse_completion_request(*body, kVocab);
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Bad {
  const char* fields;
  const char* param;
};

TEST(ChatRequestTest, RefusesWrongTypesAndRangesByName) {
  const Bad cases[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":3)", "temperature"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.5)", "top_p"},
      {R"("top_k":-5)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("min_p":2)", "min_p"},
      {R"("stream":"yes")", "stream"},
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("best_of":2)", "best_of"},
      {R"("seed":1180591620717411303424)", "seed"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":"x")", "seed"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-2)", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":"8")", "max_tokens"},
      {R"("max_tokens":true)", "max_tokens"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("stop":"")", "stop"},
      {R"("stop":["END",""])", "stop"},
      {R"("stop":["a","b","c","d","e"])", "stop"},
      {R"("stop":5)", "stop"},
      {R"("stop":[1])", "stop"},
      {R"("stop":{"a":1})", "stop"},
      {R"("presence_penalty":2.5)", "presence_penalty"},
      {R"("frequency_penalty":"x")", "frequency_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("repeat_penalty":-1)", "repeat_penalty"},
      {R"("logit_bias":{"9000":1})", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias.1"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("logprobs":5)", "logprobs"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("reasoning_effort":"extreme")", "reasoning_effort"},
      {R"("reasoning":{"effort":"extreme"})", "reasoning.effort"},
      {R"("chat_template_kwargs":{"enable_thinking":"yes"})", "chat_template_kwargs.enable_thinking"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages"},
      {R"("response_format":{"type":"yaml"})", "response_format.type"},
      {R"("response_format":{})", "response_format.type"},
      {R"("response_format":"json_object")", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
       "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":true}})",
       "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":"yes"}})",
       "response_format.json_schema.strict"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"name":7}})",
       "response_format.json_schema.name"},
      {R"("response_format":{"type":"json_object"},"json_schema":{})", "json_schema"},
      {R"("response_format":{"type":"json_object"},"grammar":"root ::= \"a\"")", "grammar"},
      {R"("json_schema":{},"grammar":"root ::= \"a\"")", "grammar"},
      {R"("json_schema":"{}")", "json_schema"},
      {R"("grammar":7)", "grammar"},
      {R"("reasoning":{"max_tokens":-1})", "reasoning.max_tokens"},
      {R"("reasoning":{"enabled":1})", "reasoning.enabled"},
      {R"("reasoning_budget_tokens":-2)", "reasoning_budget_tokens"},
      {R"("thinking_budget_tokens":"x")", "thinking_budget_tokens"},
      {R"("thinking":{"type":"on"})", "thinking.type"},
      {R"("thinking":{"type":"enabled","budget_tokens":0})", "thinking.budget_tokens"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"a","strict":1}}])", "tools[0].function.strict"},
      {R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])",
       "tools[1].function.name"},
      {R"("model":7)", "model"},
      {R"("tools":{})", "tools"},
      {R"("tools":[1])", "tools"},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":"sometimes")", "tool_choice"},
  };
  for (const Bad& bad : cases) {
    auto request = chat_with(bad.fields);
    ASSERT_FALSE(request) << bad.fields;
    EXPECT_EQ(request.error().status, 400u);
    EXPECT_EQ(request.error().type, "invalid_request_error");
    EXPECT_EQ(request.error().param, bad.param) << bad.fields;
    EXPECT_GT(request.error().message.size(), 20u) << bad.fields;
  }
}

TEST(ChatRequestTest, AcceptsTheBoundsNullAndTheUsualWaysToSayOff) {
  for (const char* fields : {R"("temperature":0)",
                             R"("temperature":2)",
                             R"("temperature":1,"top_p":1)",
                             R"("top_k":0)",
                             R"("top_k":-1)",
                             R"("seed":0)",
                             R"("seed":-1)",
                             R"("seed":9223372036854775807)",
                             R"("seed":null)",
                             R"("stop":null)",
                             R"("stop":[])",
                             R"("stop":["a","b","c","d"])",
                             R"("max_tokens":null,"max_completion_tokens":null)",
                             R"("max_tokens":-1)",
                             R"("max_tokens":7.0)",
                             R"("n":1)",
                             R"("n":128)",
                             R"("n":2,"best_of":2)",
                             R"("grammar":"")",
                             R"("response_format":null,"json_schema":null,"grammar":null)",
                             R"("response_format":{"type":"text"},"grammar":"root ::= \"a\"")",
                             R"("logprobs":true,"top_logprobs":0)",
                             R"("logprobs":false)",
                             R"("response_format":{"type":"text"})",
                             R"("tool_choice":"none")",
                             R"("tool_choice":"auto")",
                             R"("tools":[])",
                             R"("stream":true,"stream_options":{"include_usage":false})",
                             R"("stream":false,"stream_options":null)"}) {
    auto request = chat_with(fields);
    EXPECT_TRUE(request) << fields << ": " << (request ? "" : request.error().message);
  }
}

TEST(ChatRequestTest, ReadsTheSamplingFieldsThatAreThereAndNoOthers) {
  auto none = chat(kUser);
  ASSERT_TRUE(none);
  const SamplingFields& left_out = none->common.sampling;
  EXPECT_FALSE(left_out.temperature || left_out.top_p || left_out.min_p || left_out.top_k || left_out.seed);

  auto all = chat_with(
      R"("temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"seed":42,"presence_penalty":1,)"
      R"("frequency_penalty":-1,"repeat_penalty":1.1,"repeat_last_n":32,"logit_bias":{"5":-100,"6":2.5})");
  ASSERT_TRUE(all);
  const SamplingFields& given = all->common.sampling;
  EXPECT_EQ(given.temperature, 0.5f);
  EXPECT_EQ(given.top_p, 0.9f);
  EXPECT_EQ(given.top_k, 7u);
  EXPECT_EQ(given.min_p, 0.1f);
  EXPECT_EQ(given.seed, 42u);
  EXPECT_EQ(given.repetition_penalty, 1.1f);
  EXPECT_EQ(given.penalty_last_n, 32u);
  ASSERT_EQ(given.logit_bias.size(), 2u);
  EXPECT_EQ(given.logit_bias[0], (std::pair<int32_t, float>{5, -100.0f}));
}

TEST(ChatRequestTest, WhatIsAboveZeroStaysSoInTheEnginesFloats) {
  auto request = chat_with(R"("top_p":5e-324,"repetition_penalty":1e-300)");
  ASSERT_TRUE(request);
  EXPECT_GT(request->common.sampling.top_p.value(), 0.0f);
  EXPECT_GT(request->common.sampling.repetition_penalty.value(), 0.0f);
}

TEST(ChatRequestTest, MaxCompletionTokensWins) {
  EXPECT_EQ(chat_with(R"("max_tokens":9,"max_completion_tokens":3)")->common.max_tokens, 3u);
  EXPECT_EQ(chat_with(R"("max_tokens":9)")->common.max_tokens, 9u);
  EXPECT_FALSE(chat_with(R"("max_tokens":-1)")->common.max_tokens);
}

TEST(ChatRequestTest, UnknownFieldsChangeNothing) {
  EXPECT_TRUE(chat_with(
      R"("store":false,"metadata":{"a":"b"},"user":"u1","service_tier":"auto","modalities":["text"],)"
      R"("prediction":{"type":"content","content":"x"},"prompt_cache_key":"k","x_anything":{"deep":[1,null]})"));
}

TEST(ChatRequestTest, MapsEveryWayToSwitchThinking) {
  const auto on = [](const std::string& field) { return chat_with(field)->thinking.on; };
  EXPECT_FALSE(chat(kUser)->thinking.on.has_value());
  EXPECT_EQ(on(R"("reasoning_effort":"none")"), false);
  EXPECT_EQ(on(R"("reasoning":{"effort":"high"})"), true);
  EXPECT_EQ(on(R"("reasoning":{"effort":"high","enabled":false})"), false);
  EXPECT_EQ(on(R"("reasoning":{"enabled":true})"), true);
  EXPECT_EQ(on(R"("reasoning":{"max_tokens":0})"), false);
  EXPECT_EQ(on(R"("thinking":{"type":"disabled"},"reasoning_effort":"high")"), false);
  EXPECT_EQ(on(R"("enable_thinking":false)"), false);
  EXPECT_EQ(on(R"("enable_thinking":false,"thinking":{"type":"enabled"})"), false);
  auto both =
      chat_with(R"("reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false,"tone":"dry"})");
  EXPECT_EQ(both->thinking.on, false);
  EXPECT_EQ(both->template_variables.at("tone"), "dry");
  EXPECT_FALSE(both->template_variables.contains("enable_thinking"));
}

TEST(ChatRequestTest, ReadsHowMuchToThink) {
  const std::pair<const char*, Effort> levels[] = {{"minimal", Effort::kMinimal},
                                                   {"low", Effort::kLow},
                                                   {"medium", Effort::kMedium},
                                                   {"high", Effort::kHigh},
                                                   {"xhigh", Effort::kXhigh}};
  for (const auto& [name, level] : levels) {
    const ThinkingFields thinking = chat_with(fmt::format(R"("reasoning_effort":"{}")", name))->thinking;
    EXPECT_EQ(thinking.on, true) << name;
    EXPECT_EQ(thinking.effort, level) << name;
    EXPECT_FALSE(thinking.budget_tokens) << name;
    EXPECT_EQ(chat_with(fmt::format(R"("reasoning":{{"effort":"{}"}})", name))->thinking.effort, level);
  }
  EXPECT_FALSE(
      chat_with(R"("reasoning":{"effort":"low"},"reasoning_effort":"none")")->thinking.effort.has_value());

  const auto budget = [](const std::string& field) { return chat_with(field)->thinking.budget_tokens; };
  EXPECT_FALSE(budget(R"("reasoning_effort":"low")"));
  EXPECT_EQ(budget(R"("reasoning":{"max_tokens":700})"), 700u);
  EXPECT_EQ(budget(R"("thinking":{"type":"enabled","budget_tokens":1024})"), 1024u);
  EXPECT_EQ(budget(R"("thinking_budget_tokens":5)"), 5u);
  EXPECT_EQ(budget(R"("reasoning_budget_tokens":6,"thinking_budget_tokens":5)"), 6u);
  EXPECT_EQ(budget(R"("reasoning_budget_tokens":-1)"), kThinkingUnlimited);
  // No tokens are off, unless thinking was asked for.
  EXPECT_EQ(chat_with(R"("reasoning_budget_tokens":0)")->thinking.on, false);
  EXPECT_EQ(chat_with(R"("reasoning_budget_tokens":0,"enable_thinking":true)")->thinking.on, true);
  EXPECT_FALSE(chat_with(R"("reasoning_budget_tokens":9)")->thinking.on.has_value());
}

TEST(ChatRequestTest, ReadsEveryWayToSayWhatTheAnswerLooksLike) {
  using Kind = AnswerForm::Kind;
  EXPECT_EQ(chat(kUser)->form.kind, Kind::kText);
  EXPECT_EQ(chat_with(R"("response_format":{"type":"text"})")->form.kind, Kind::kText);
  const AnswerForm object = chat_with(R"("response_format":{"type":"json_object"})")->form;
  EXPECT_EQ(object.kind, Kind::kObject);
  EXPECT_EQ(object.param, "response_format");
  for (
      const char* field :
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":false,"schema":{"type":"null"}}})",
       R"("response_format":{"type":"json_schema","name":"n","schema":{"type":"null"}})",
       R"("response_format":{"type":"json_object","schema":{"type":"null"}})"}) {
    const AnswerForm form = chat_with(field)->form;
    EXPECT_EQ(form.kind, Kind::kSchema) << field;
    EXPECT_EQ(form.source, R"({"type":"null"})") << field;
    EXPECT_EQ(form.param, "response_format") << field;
  }
  const AnswerForm schema = chat_with(R"("json_schema":{"type":"null"})")->form;
  EXPECT_EQ(schema.kind, Kind::kSchema);
  EXPECT_EQ(schema.param, "json_schema");
  const AnswerForm grammar = chat_with(R"("grammar":"root ::= \"a\"")")->form;
  EXPECT_EQ(grammar.kind, Kind::kGrammar);
  EXPECT_EQ(grammar.source, "root ::= \"a\"");
  EXPECT_EQ(completion(R"("prompt":"a","grammar":"root ::= \"a\"")")->form.kind, Kind::kGrammar);
  EXPECT_EQ(completion(R"("prompt":"a","response_format":{"type":"json_object"})")->form.kind, Kind::kObject);
}

TEST(ChatRequestTest, ReadsWhichToolsAreStrictAndHowManyAnswersThereAre) {
  auto request = chat_with(R"("n":3,"tools":[{"type":"function","function":{"name":"a","strict":true}},)"
                           R"({"type":"function","function":{"name":"b.c/d:e-f_1","strict":false}}])");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tools.strict, std::set<std::string>{"a"});
  EXPECT_EQ(request->common.n, 3u);
}

TEST(MessagesTest, RefusesEmptyAndOddOnesByPlace) {
  const Bad cases[] = {
      {R"("model":"m")", "messages"},
      {R"("messages":null)", "messages"},
      {R"("messages":"hi")", "messages"},
      {R"("messages":[])", "messages"},
      {R"("messages":[1])", "messages[0]"},
      {R"("messages":[{"content":"hi"}])", "messages[0].role"},
      {R"("messages":[{"role":"wizard","content":"hi"}])", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":7}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":[{"type":"hologram"}]}])", "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
       "messages[0].content"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"("messages":[{"role":"assistant","content":""}])", "messages"},
  };
  for (const Bad& bad : cases) {
    auto request = chat(bad.fields);
    ASSERT_FALSE(request) << bad.fields;
    EXPECT_EQ(request.error().param, bad.param) << request.error().message;
  }
  EXPECT_NE(chat(R"("messages":[{"role":"user","content":[{"type":"hologram"}]}])")
                .error()
                .message.find("hologram"),
            std::string::npos);
}

TEST(MessagesTest, BringsEveryFormOfContentIntoOne) {
  const std::string text =
      to_json(chat(R"("messages":[{"role":"user","content":"What is a violin?"}])")->messages.list);
  for (const char* content : {R"([{"type":"text","text":"What is a violin?"}])",
                              R"([{"type":"text","text":"What is"},{"type":"text","text":" a violin?"}])"}) {
    EXPECT_EQ(
        to_json(chat(fmt::format(R"("messages":[{{"role":"user","content":{}}}])", content))->messages.list),
        text);
  }
}

TEST(MessagesTest, AnAssistantTurnWithACallMayHaveNoContent) {
  std::string first;
  for (const char* content : {R"("content":null,)", "", R"("content":"",)", R"("content":[],)"}) {
    auto request = chat(fmt::format(
        R"("messages":[{{"role":"user","content":"q"}},{{"role":"assistant",{}"tool_calls":[{{"id":"c1","type":"function",)"
        R"("function":{{"name":"f","arguments":"{{\"a\": 1}}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"20"}}])",
        content));
    ASSERT_TRUE(request) << content;
    std::string text = to_json(request->messages.list);
    if (first.empty()) first = text;
    EXPECT_EQ(text, first);
    EXPECT_NE(text.find(R"("arguments":{"a":1})"), std::string::npos) << "arguments stayed text";
  }
}

TEST(MessagesTest, MapsOldRolesAndCalls) {
  auto request = chat(
      R"("messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"t?","name":"rosa"},)"
      R"({"role":"assistant","content":"","function_call":{"name":"get_time","arguments":"{}"}},)"
      R"({"role":"function","name":"get_time","content":"noon"}])");
  ASSERT_TRUE(request);
  EXPECT_EQ(
      to_json(request->messages.list),
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"t?","name":"rosa"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"id":"","type":"function","function":{"name":"get_time","arguments":{}}}]},)"
      R"({"role":"tool","content":"noon","name":"get_time"}])");
  EXPECT_FALSE(request->messages.continues_answer);
}

TEST(MessagesTest, RuleB9WhatAToolGivesMayHoldPartsThatAreNoText) {
  auto request = chat(
      R"("messages":[{"role":"user","content":"t?"},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"noon"},)"
      R"({"type":"image_url","image_url":{"url":"data:,"}},{"type":"smell"}]}])");
  ASSERT_TRUE(request) << request.error().message;
  const std::string list = to_json(request->messages.list);
  EXPECT_NE(list.find("noon"), std::string::npos);
  EXPECT_NE(list.find("smell"), std::string::npos) << "the part left no note";
}

TEST(MessagesTest, DropsFinishedEmptyTurnsAndBillingLinesAndNotesOldImages) {
  auto request = chat(
      R"("messages":[{"role":"system","content":"x-anthropic-billing-header: 17\nBe kind."},{"role":"assistant","content":""},)"
      R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]},{"role":"user","content":"and now?"}])");
  ASSERT_TRUE(request);
  EXPECT_EQ(to_json(request->messages.list),
            R"([{"role":"system","content":"Be kind."},{"role":"user","content":"[image omitted]"},)"
            R"({"role":"user","content":"and now?"}])");
}

TEST(MessagesTest, AConversationThatEndsWithTheAssistantIsContinued) {
  EXPECT_TRUE(chat(R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":"A violin"}])")
                  ->messages.continues_answer);
  EXPECT_FALSE(chat(R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":null}])")
                   ->messages.continues_answer);
}

TEST(ToolsTest, OffersWhatTheChoiceAllowsAndDropsHostedOnes) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"get_time"}},{"type":"web_search"}])";
  auto choose = [&tools](const char* choice) {
    return chat_with(fmt::format(R"({},"tool_choice":{})", tools, choice));
  };
  auto offered = chat_with(tools);
  ASSERT_TRUE(offered);
  EXPECT_EQ(offered->tools.offered.size(), 1u);
  EXPECT_EQ(offered->tools.dropped, std::vector<std::string>{"web_search"});
  EXPECT_TRUE(choose(R"("none")")->tools.offered.empty());
  auto unknown = choose(R"({"type":"function","function":{"name":"nosuch"}})");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().param, "tool_choice");
  auto forced = choose(R"("required")");
  ASSERT_TRUE(forced) << forced.error().message;
  EXPECT_TRUE(forced->tools.rule.required);
  EXPECT_TRUE(forced->tools.rule.named.empty());
  auto named = choose(R"({"type":"function","function":{"name":"get_time"}})");
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->tools.rule.named, "get_time");
  EXPECT_FALSE(offered->tools.rule.required || offered->tools.rule.one);
  EXPECT_TRUE(chat_with(tools + R"(,"parallel_tool_calls":false)")->tools.rule.one);
}

TEST(CompletionRequestTest, TakesTextTokensAndSeveralPrompts) {
  EXPECT_EQ(completion(R"("prompt":"Once")")->prompts.size(), 1u);
  EXPECT_EQ(completion(R"("prompt":["Once","The fox"])")->prompts.size(), 2u);
  auto tokens = completion(R"("prompt":[100,200,300])");
  ASSERT_EQ(tokens->prompts.size(), 1u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(tokens->prompts[0]), (std::vector<int32_t>{100, 200, 300}));
  EXPECT_EQ(completion(R"("prompt":[[1,2],[3]])")->prompts.size(), 2u);
}

TEST(CompletionRequestTest, HasTheDefaultsOfTheOriginalApi) {
  EXPECT_EQ(completion(R"("prompt":"Once")")->common.max_tokens, kCompletionTokensDefault);
  EXPECT_FALSE(completion(R"("prompt":"Once","max_tokens":-1)")->common.max_tokens);
  EXPECT_FALSE(completion(R"("prompt":"Once")")->common.logprobs);
  auto scored = completion(R"("prompt":"Once","logprobs":2)");
  EXPECT_TRUE(scored->common.logprobs);
  EXPECT_EQ(scored->common.top_logprobs, 2u);
}

TEST(CompletionRequestTest, RefusesWhatItCannotDoByName) {
  const Bad cases[] = {
      {R"("model":"m")", "prompt"},
      {R"("prompt":7)", "prompt"},
      {R"("prompt":[])", "prompt"},
      {R"("prompt":["a",7])", "prompt"},
      {R"("prompt":[1,"a"])", "prompt"},
      {R"("prompt":[9000])", "prompt"},
      {R"("prompt":[-1])", "prompt"},
      {R"("prompt":"a","suffix":"b")", "suffix"},
      {R"("prompt":"a","best_of":21)", "best_of"},
      {R"("prompt":"a","n":3,"best_of":2)", "best_of"},
      {R"("prompt":"a","best_of":2,"stream":true)", "best_of"},
      {R"("prompt":["a","b"],"n":65)", "n"},
      {R"("prompt":"a","echo":true,"logprobs":1)", "echo"},
      {R"("prompt":"a","logprobs":21)", "logprobs"},
  };
  for (const Bad& bad : cases) {
    auto request = completion(bad.fields);
    ASSERT_FALSE(request) << bad.fields;
    EXPECT_EQ(request.error().param, bad.param) << bad.fields;
  }
  EXPECT_TRUE(completion(R"("prompt":"a","suffix":"","best_of":1)"));
  EXPECT_TRUE(completion(R"("prompt":"a","n":2,"best_of":2,"stream":true)"));
  EXPECT_EQ(completion(R"("prompt":"a","n":2)")->best_of, 2u);
  EXPECT_EQ(completion(R"("prompt":"a","n":2,"best_of":5)")->best_of, 5u);
  EXPECT_EQ(completion(R"("prompt":"a","n":2,"best_of":5)")->common.n, 2u);
}

// Rule B27: every field that the parsers look at stands in the documentation, so that none is silently
// without effect.
TEST(RequestFieldsTest, TheHeaderOfTheTimeout) {
  EXPECT_EQ(read_timeout_header(nullptr).value(), std::nullopt);
  const std::string good[] = {"1", "30000", "604800000"};
  for (const std::string& text : good) {
    auto read = read_timeout_header(&text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, std::chrono::milliseconds(std::stoll(text)));
  }
  const std::string bad[] = {"", "0", "-1", "1.5", "5s", " 5", "604800001", "99999999999999999999"};
  for (const std::string& text : bad) {
    auto read = read_timeout_header(&text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().status, 400u);
  }
}

// Whatever the parsers look for by its name at the top of a body. Read from their source, so that a new field
// cannot be forgotten.
TEST(RequestFieldsTest, RuleB27EveryFieldThatIsReadIsInTheDocumentation) {
  const std::string folder = STRATA_SOURCE_DIR "/gateway/api/";
  const std::string page = text_of(STRATA_SOURCE_DIR "/docs/api.md");
  const std::regex reads(R"re(\bfields\.(?:find|number|integer|boolean|string|object)\(\s*"([a-z_]+)")re");
  std::set<std::string> names;
  for (const char* file :
       {"answer_form.cc", "chat_request.cc", "completion_request.cc", "messages_request.cc",
        "request_fields.cc", "response_request.cc", "thinking_fields.cc", "tools.cc"}) {
    const std::string source = text_of(folder + file);
    for (auto at = std::sregex_iterator(source.begin(), source.end(), reads); at != std::sregex_iterator();
         ++at)
      names.insert((*at)[1]);
  }
  EXPECT_GT(names.size(), 40u) << "the parsers look different now";
  for (const std::string& name : names)
    EXPECT_NE(page.find(fmt::format("`{}`", name)), std::string::npos) << name;
}

TEST(RequestFieldsTest, EveryFieldIsInTheDocumentation) {
  const std::string page = text_of(STRATA_SOURCE_DIR "/docs/api.md");
  for (const char* field : {"model",
                            "messages",
                            "prompt",
                            "stream",
                            "stream_options",
                            "temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "seed",
                            "stop",
                            "max_tokens",
                            "max_completion_tokens",
                            "presence_penalty",
                            "frequency_penalty",
                            "repetition_penalty",
                            "repeat_penalty",
                            "repeat_last_n",
                            "logit_bias",
                            "logprobs",
                            "top_logprobs",
                            "n",
                            "priority",
                            "timeout_ms",
                            "tools",
                            "tool_choice",
                            "parallel_tool_calls",
                            "chat_template_kwargs",
                            "reasoning_effort",
                            "reasoning",
                            "enable_thinking",
                            "thinking_budget_tokens",
                            "reasoning_budget_tokens",
                            "response_format",
                            "json_schema",
                            "grammar",
                            "output_format",
                            "output_config",
                            "return_progress",
                            "system",
                            "stop_sequences",
                            "thinking",
                            "disable_parallel_tool_use",
                            "echo",
                            "suffix",
                            "best_of",
                            "store",
                            "metadata",
                            "user",
                            "service_tier",
                            "prediction",
                            "modalities",
                            "prompt_cache_key"}) {
    EXPECT_NE(page.find(fmt::format("`{}`", field)), std::string::npos) << field;
  }
}

}  // namespace
}  // namespace strata::gateway
