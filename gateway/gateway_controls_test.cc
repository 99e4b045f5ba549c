// What requests ask of the generation itself, over real sockets: forms of answers, constrained calls, budgets
// of thinking, several choices. The engine behind is a script; what it is told is looked at.

#include <algorithm>
#include <chrono>

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using testing::chat;
using testing::kChat;
using testing::RawClient;
using testing::RawResponse;
using testing::SeenCall;

constexpr const char* kText = "/v1/completions";
constexpr const char* kMessages = "/v1/messages";
constexpr const char* kJson =
    R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object",)"
    R"("properties":{"a":{"type":"integer"}},"required":["a"]}}})";
constexpr const char* kTools = R"(,"tools":[{"type":"function","function":{"name":"get_time"}}])";

class ControlsTest : public testing::GatewayTest {
 protected:
  static std::string message(std::string_view more) {
    return fmt::format(
        R"({{"model":"any","max_tokens":100,"messages":[{{"role":"user","content":"Why?"}}]{}}})", more);
  }
  static std::string completion(std::string_view more) {
    return fmt::format(R"({{"model":"any","prompt":"Once"{}}})", more);
  }
  SeenCall last() { return engine_->seen().back(); }
  static int32_t think_end() { return gateway::test_tokenizer().find_token("</think>"); }
  // 400, in OpenAI's shape; returns the parameter.
  std::string refused(std::string_view path, const std::string& body) {
    const RawResponse response = post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const auto error = json(response).at("error");
    return error.at("param").is_null() ? "" : std::string(error.at("param").as_string());
  }
};

TEST_F(ControlsTest, Case17EveryDialectSendsItsFormWithTheGeneration) {
  start();
  ASSERT_EQ(post(kChat, chat()).status, 200);
  EXPECT_FALSE(last().gbnf) << "a free answer";
  ASSERT_EQ(post(kChat, chat(R"(,"response_format":{"type":"text"})")).status, 200);
  EXPECT_FALSE(last().gbnf);
  const std::string schema = R"({"type":"object","properties":{"needle":{"type":"integer"}}})";
  const std::pair<const char*, std::string> requests[] = {
      {kChat, chat(R"(,"response_format":{"type":"json_schema","json_schema":{"schema":)" + schema + "}}")},
      {kChat, chat(R"(,"json_schema":)" + schema)},
      {kChat, chat(R"(,"grammar":"root ::= \"needle\"")")},
      {kText, completion(R"(,"json_schema":)" + schema)},
      {kText, completion(R"(,"grammar":"root ::= \"needle\"")")},
      {kMessages, message(R"(,"output_format":{"type":"json_schema","schema":)" + schema + "}")},
      {kMessages, message(R"(,"output_config":{"format":{"type":"json_schema","schema":)" + schema + "}}")},
  };
  for (const auto& [path, body] : requests) {
    const RawResponse response = post(path, body);
    ASSERT_EQ(response.status, 200) << body << response.body;
    ASSERT_TRUE(last().gbnf) << body;
    EXPECT_NE(last().gbnf->find("needle"), std::string::npos) << body;
    EXPECT_EQ(last().gbnf_prompt_tokens, 0u);
  }
  ASSERT_EQ(post(kChat, chat(R"(,"response_format":{"type":"json_object"},"stream":true)")).status, 200);
  EXPECT_TRUE(last().gbnf);
}

TEST_F(ControlsTest, RuleB18WhatCannotBeEnforcedIsNeverServed) {
  start();
  const std::string odd = R"({"properties":{"a":{"uniqueItems":true,"type":"array"}}})";
  const std::string format =
      R"("response_format":{"type":"json_schema","json_schema":{"strict":false,"schema":)";
  EXPECT_EQ(refused(kChat, chat("," + format + odd + "}}")), "response_format");
  EXPECT_EQ(refused(kChat, chat("," + format + odd + R"(}},"stream":true)")), "response_format");
  EXPECT_EQ(refused(kChat, chat(R"(,"json_schema":)" + odd)), "json_schema");
  EXPECT_EQ(refused(kText, completion(R"(,"grammar":"root ::= nothing")")), "grammar");
  EXPECT_EQ(refused(kChat, chat(R"(,"response_format":{"type":"yaml"})")), "response_format.type");
  EXPECT_EQ(refused(kChat, chat(std::string(R"(,"grammar":"root ::= \"a\"")") + kTools)), "grammar");
  EXPECT_EQ(
      refused(kChat, R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"{"}],)" +
                         format + "{}}}}"),
      "response_format");
  const RawResponse message =
      post(kMessages, this->message(R"(,"output_format":{"type":"json_schema","schema":)" + odd + "}"));
  EXPECT_EQ(message.status, 400);
  EXPECT_NE(message.body.find("#/properties/a"), std::string::npos) << message.body;
  EXPECT_NE(message.body.find("uniqueItems"), std::string::npos) << message.body;
  EXPECT_TRUE(engine_->seen().empty()) << "something was generated";
}

TEST_F(ControlsTest, RuleB19ThinkingIsFreeAndTheAnswerBehindItIsTheFormAlone) {
  engine_->set_script({.text = "Hm, {\"a\"?\n</think>\n\n{\"a\": 1}"});
  start();
  for (const bool stream : {false, true}) {
    const RawResponse response =
        post(kChat,
             chat(fmt::format(R"({},"reasoning_effort":"low","max_tokens":100,"stream":{})", kJson, stream)));
    EXPECT_EQ(stream ? streamed(response.body) : content(response), R"({"a": 1})");
    EXPECT_EQ(last().thinking_end, think_end());
    EXPECT_EQ(last().thinking_tokens_max, 80u);
    ASSERT_TRUE(last().gbnf);
  }
  post(kChat, chat(std::string(kJson) + R"(,"reasoning_effort":"none")"));
  EXPECT_EQ(last().thinking_tokens_max, 0u) << "not of its own, either";
  EXPECT_TRUE(last().thinking_begin);
}

TEST_F(ControlsTest, RuleB21ToolsAndAFormTogether) {
  engine_->set_script({.text = R"({"a": 1})"});
  start();
  EXPECT_EQ(content(post(kChat, chat(std::string(kJson) + kTools))), R"({"a": 1})");
  EXPECT_NE(last().gbnf->find("<tool_call>"), std::string::npos);
  engine_->set_script({.text = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>"});
  EXPECT_EQ(json(post(kChat, chat(std::string(kJson) + kTools))).at("choices").at(0).at("finish_reason"),
            "tool_calls");
}

TEST_F(ControlsTest, Case15CallsAreConstrainedAndABegunOneBelongsToTheGrammar) {
  engine_->set_script({.text = " {}}\n</tool_call>"});
  start();
  ASSERT_EQ(post(kChat, chat(std::string(kTools) + R"(,"tool_choice":"required")")).status, 200);
  ASSERT_TRUE(last().gbnf);
  const SeenCall call = last();
  const std::size_t begun = call.prompt_tokens.size() - call.gbnf_prompt_tokens;
  const std::vector<int32_t> tail(call.prompt_tokens.begin() + static_cast<std::ptrdiff_t>(begun),
                                  call.prompt_tokens.end());
  EXPECT_EQ(gateway::test_tokenizer().decode(tail), "<tool_call>\n{\"name\": \"get_time\", \"arguments\":");
  ASSERT_EQ(post(kChat, chat(kTools)).status, 200);
  EXPECT_TRUE(last().gbnf);
  EXPECT_EQ(last().gbnf_prompt_tokens, 0u);
  ASSERT_EQ(post(kChat, chat(std::string(kTools) + R"(,"tool_choice":"none")")).status, 200);
  EXPECT_FALSE(last().gbnf);
}

TEST_F(ControlsTest, RuleB20OddSchemasOfToolsAreLetThroughWithAWarningUnlessStrict) {
  start();
  const std::string odd =
      R"("name":"f","parameters":{"properties":{"a":{"type":"string","pattern":"\\bx"}}})";
  RawResponse loose = post(kChat, chat(R"(,"tools":[{"type":"function","function":{)" + odd + "}}]"));
  EXPECT_EQ(loose.status, 200);
  EXPECT_NE(loose.headers["x-strata-warnings"].find("tool \"f\": schema at #/properties/a: \"pattern\""),
            std::string::npos)
      << loose.headers["x-strata-warnings"];
  EXPECT_FALSE(post(kChat, chat(kTools)).headers.contains("x-strata-warnings"));
  EXPECT_EQ(refused(kChat, chat(R"(,"tools":[{"type":"function","function":{"strict":true,)" + odd + "}}]")),
            "tools");
  const std::string anthropic = R"("name":"f","input_schema":{"properties":{"a":{"not":{}}}})";
  EXPECT_EQ(post(kMessages, message(",\"tools\":[{" + anthropic + "}]")).status, 200);
  EXPECT_EQ(post(kMessages, message(",\"tools\":[{\"strict\":true," + anthropic + "}]")).status, 400);
}

TEST_F(ControlsTest, AGrammarThatOnlyTheEngineRefusesIsA400) {
  engine_->set_script({.refuses = "the grammar needs too many states"});
  start();
  EXPECT_EQ(refused(kChat, chat(kJson)), "response_format");
  EXPECT_EQ(post(kChat, chat()).status, 200);
}

TEST_F(ControlsTest, Case20LevelsAndBudgetsBoundTheThinking) {
  settings_.thinking_low_tokens.set(64);
  start();
  const auto tokens = [this](std::string_view path, const std::string& body, bool own = false) {
    const RawResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(last().thinking_begin.has_value(), own) << body;
    return last().thinking_tokens_max;
  };
  const bool kOwn = true;  // the template does not open it, the model may
  EXPECT_EQ(tokens(kChat, chat(R"(,"max_tokens":50)"), kOwn), 40u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"reasoning_effort":"none")"), kOwn), 0u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"reasoning_effort":"low")")), 64u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"reasoning_effort":"low","max_tokens":50)")), 40u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"reasoning":{"effort":"low"})")), 64u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"reasoning":{"max_tokens":7})")), 7u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"enable_thinking":true,"reasoning_budget_tokens":9)")), 9u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"enable_thinking":true,"thinking_budget_tokens":0)")), 0u);
  EXPECT_EQ(tokens(kChat, chat(R"(,"thinking_budget_tokens":0)"), kOwn), 0u);
  EXPECT_EQ(tokens(kMessages, message(R"(,"thinking":{"type":"enabled","budget_tokens":33})")), 33u);
  EXPECT_EQ(tokens(kMessages, message(R"(,"thinking":{"type":"adaptive"},"output_config":{"effort":"low"})")),
            64u);
  EXPECT_EQ(tokens(kMessages, message(R"(,"output_config":{"effort":"high"})"), kOwn), 0u);
  EXPECT_EQ(json(get("/props")).at("thinking").at("budget_tokens").at("low"), 64);
}

TEST_F(ControlsTest, Case19ChoicesRunSideBySideWhereThereAreSequences) {
  engine_->set_script({.endless = true, .per_token = std::chrono::milliseconds(2)});
  engine_->set_sequences(4);
  start();
  RawClient client(port_);
  client.request("POST", kChat, chat(R"(,"n":3,"stream":true,"max_tokens":1000)"));
  ASSERT_TRUE(until([&] { return engine_->running() == 3; }));
  for (const char* index : {R"("index":2)", R"("index":0)", R"("index":1)"})
    EXPECT_TRUE(client.read_until(index));
  const auto slots = json(get("/slots")).as_array();
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(std::ranges::count_if(slots, [](const auto& slot) { return slot.at("is_processing") == true; }),
            3);
  client.close();
  EXPECT_TRUE(until([&] { return engine_->running() == 0; }));
}

TEST_F(ControlsTest, Case19SeveralChoicesWholeAndStreamed) {
  start();
  auto body = json(post(kChat, chat(R"(,"n":2,"seed":7)")));
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), last().prompt_tokens.size());
  EXPECT_EQ(last().seed, 8u);
  const RawResponse stream = post(kText, completion(R"(,"n":2,"stream":true)"));
  EXPECT_NE(stream.body.find(R"("index":1)"), std::string::npos);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  const auto prompts = json(post(kText, R"({"prompt":["Once","Twice"],"n":2,"best_of":3,"max_tokens":4})"));
  EXPECT_EQ(prompts.at("choices").as_array().size(), 4u);
  EXPECT_EQ(prompts.at("usage").at("completion_tokens"), 24) << "all six are counted";
  EXPECT_EQ(refused(kText, completion(R"(,"best_of":2,"stream":true)")), "best_of");
  const std::string long_prompt(400, 'x');
  post(kText, fmt::format(R"({{"prompt":"{}","n":2,"max_tokens":1}})", long_prompt));
  const auto first = engine_->seen().at(engine_->seen().size() - 2);
  EXPECT_EQ(first.checkpoints, (std::vector<uint32_t>{static_cast<uint32_t>(first.prompt_tokens.size()) - 1}))
      << "the second answer reads all of it again";
  EXPECT_EQ(refused(kChat, chat(R"(,"n":129)")), "n");
}

}  // namespace
}  // namespace strata::gateway
