// Bodies of Anthropic's dialect in the form of a chat request (api-cases 31, 33, 35).

#include "gateway/api/messages_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway/api/json_text.h"

namespace strata::gateway {
namespace {

ApiResult<ChatRequest> parse(const std::string& fields, MessagesUse use = MessagesUse::kGenerate) {
  auto body = parse_body(fmt::format("{{{}}}", fields));
  EXPECT_TRUE(body) << fields;
  return parse_messages_request(*body, 8192, use);
}
ApiResult<ChatRequest> with(const std::string& more) {
  return parse(R"("max_tokens":64,"messages":[{"role":"user","content":"hi"}],)" + more);
}
std::string list(const std::string& messages, const std::string& more = "") {
  auto request = parse(fmt::format(R"("max_tokens":64,"messages":[{}]{})", messages, more));
  EXPECT_TRUE(request) << request.error().message;
  return request ? to_json(request->messages.list) : "";
}

TEST(MessagesRequestTest, Case31SystemIsAStringOrBlocksAndCacheControlIsNothing) {
  const std::string want = R"([{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}])";
  const std::string user = R"({"role":"user","content":"hi"})";
  EXPECT_EQ(list(user, R"(,"system":"Be kind.")"), want);
  EXPECT_EQ(
      list(user, R"(,"system":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}])"),
      want);
  EXPECT_EQ(
      list(
          R"({"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]})",
          R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"Be kind."}])"),
      want);
  EXPECT_EQ(list(user, R"(,"system":[{"type":"text","text":"A"},{"type":"text","text":"B"}])"),
            R"([{"role":"system","content":"A\n\nB"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(list(user, R"(,"system":[])"), R"([{"role":"user","content":"hi"}])");
}

TEST(MessagesRequestTest, Case33UsesAndResultsInEveryForm) {
  const std::string uses =
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"x"},)"
      R"({"type":"redacted_thinking","data":"x"},)"
      R"({"type":"text","text":"I look."},{"type":"tool_use","id":"t0","name":"f","input":{"a":1}},)"
      R"({"type":"tool_use","id":"t1","name":"g","input":{}}]})";
  EXPECT_EQ(
      list(R"({"role":"user","content":"q"},)" + uses +
           R"(,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t0","content":"20"},)"
           R"({"type":"tool_result","tool_use_id":"t1","is_error":true,"content":[{"type":"text",)"
           R"("text":"no"},{"type":"document"}]},)"
           R"({"type":"tool_result","tool_use_id":"t2"},{"type":"text","text":"And?"}]})"),
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"I look.","reasoning_content":"Hm.","tool_calls":[)"
      R"({"id":"t0","type":"function","function":{"name":"f","arguments":{"a":1}}},{"id":"t1",)"
      R"("type":"function","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","content":"20","tool_call_id":"t0"},{"role":"tool",)"
      R"("content":"no[document omitted]","tool_call_id":"t1"},)"
      R"({"role":"tool","content":"","tool_call_id":"t2"},{"role":"user","content":"And?"}])");
}

TEST(MessagesRequestTest, EmptyTurnsAndOpenAnswers) {
  EXPECT_EQ(
      list(R"({"role":"user","content":""},{"role":"assistant","content":[]},{"role":"user","content":[]})"),
      R"([{"role":"user","content":""},{"role":"user","content":""}])");
  EXPECT_TRUE(
      parse(R"("max_tokens":1,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"A"}])")
          ->messages.continues_answer);
  EXPECT_FALSE(with(R"("x":1)")->messages.continues_answer);
}

TEST(MessagesRequestTest, ImagesAreRefusedOnlyInTheNewestMessage) {
  const std::string image = R"({"role":"user","content":[{"type":"image","source":{}}]})";
  EXPECT_EQ(list(image + R"(,{"role":"user","content":"q"})"),
            R"([{"role":"user","content":"[image omitted]"},{"role":"user","content":"q"}])");
  auto refused = parse(R"("max_tokens":1,"messages":[)" + image + "]");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages[0].content");
}

TEST(MessagesRequestTest, RuleB15ThinksOnlyWhenAsked) {
  EXPECT_EQ(with(R"("x":1)")->thinking.on, false);
  EXPECT_EQ(with(R"("thinking":{"type":"disabled"})")->thinking.on, false);
  EXPECT_EQ(with(R"("thinking":{"type":"enabled","budget_tokens":1024})")->thinking.on, true);
  EXPECT_EQ(with(R"("thinking":{"type":"adaptive"})")->thinking.on, true);
}

TEST(MessagesRequestTest, ReadsHowMuchToThink) {
  const ThinkingFields budget = with(R"("thinking":{"type":"enabled","budget_tokens":1024})")->thinking;
  EXPECT_EQ(budget.budget_tokens, 1024u);
  EXPECT_FALSE(budget.effort);
  // An effort alone does not switch thinking on: it is about all of the answer, in this dialect.
  const ThinkingFields effort = with(R"("output_config":{"effort":"low"})")->thinking;
  EXPECT_EQ(effort.on, false);
  EXPECT_EQ(effort.effort, Effort::kLow);
  const ThinkingFields both =
      with(R"("output_config":{"effort":"max"},"thinking":{"type":"adaptive"})")->thinking;
  EXPECT_EQ(both.on, true);
  EXPECT_EQ(both.effort, Effort::kXhigh);
}

TEST(MessagesRequestTest, ReadsBothPlacesOfTheFormat) {
  const std::string format = R"({"type":"json_schema","schema":{"type":"null"}})";
  const AnswerForm newer = with(fmt::format(R"("output_config":{{"format":{}}})", format))->form;
  EXPECT_EQ(newer.source, R"({"type":"null"})");
  EXPECT_EQ(newer.param, "output_config.format");
  const AnswerForm older = with(fmt::format(R"("output_format":{})", format))->form;
  EXPECT_EQ(older.source, R"({"type":"null"})");
  EXPECT_EQ(older.param, "output_format");
  EXPECT_EQ(with(R"("output_config":{"effort":"low"})")->form.kind, AnswerForm::Kind::kText);
}

TEST(MessagesRequestTest, ToolsMayBeStrict) {
  auto request =
      with(R"("tools":[{"name":"f","strict":true,"input_schema":{"type":"object"}},{"name":"g"}])");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tools.strict, std::set<std::string>{"f"});
  EXPECT_EQ(to_json(request->tools.offered).find("strict"), std::string::npos) << "the template shows it";
}

TEST(MessagesRequestTest, Case33ToolsBecomeFunctionsAndChoicesRules) {
  const std::string tools =
      R"("tools":[{"name":"f","description":"F.","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},)"
      R"({"type":"web_search_20250305","name":"web_search"}])";
  auto offered = with(tools);
  ASSERT_TRUE(offered) << offered.error().message;
  EXPECT_EQ(
      to_json(offered->tools.offered),
      R"([{"type":"function","function":{"name":"f","description":"F.","parameters":{"type":"object"}}}])");
  EXPECT_EQ(offered->tools.dropped, std::vector<std::string>{"web_search_20250305"});
  auto choose = [&](const char* choice) {
    return with(fmt::format(R"({},"tool_choice":{})", tools, choice));
  };
  EXPECT_FALSE(choose(R"({"type":"auto"})")->tools.rule.required);
  EXPECT_TRUE(choose(R"({"type":"auto","disable_parallel_tool_use":true})")->tools.rule.one);
  EXPECT_TRUE(choose(R"({"type":"any"})")->tools.rule.required);
  EXPECT_EQ(choose(R"({"type":"tool","name":"f"})")->tools.rule.named, "f");
  EXPECT_TRUE(choose(R"({"type":"none"})")->tools.offered.empty());
  for (const char* bad : {R"({"type":"tool","name":"nosuch"})", R"({"type":"tool"})", R"({"type":"some"})",
                          R"({})", "\"auto\""}) {
    EXPECT_FALSE(choose(bad)) << bad;
  }
  EXPECT_FALSE(with(R"("tool_choice":{"type":"any"})")) << "a call without tools";
}

TEST(MessagesRequestTest, SamplingAndStops) {
  auto request = with(R"("temperature":0.5,"top_k":7,"stop_sequences":["a","b","c","d","e"],"stream":true)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->common.max_tokens, 64u);
  EXPECT_EQ(request->common.stop.size(), 5u);
  EXPECT_EQ(request->common.sampling.top_k, 7u);
  EXPECT_TRUE(request->common.stream);
}

TEST(MessagesRequestTest, RefusesByName) {
  struct Bad {
    const char* fields;
    const char* param;
  };
  for (
      const Bad& bad : {
          Bad{R"("messages":[{"role":"user","content":"hi"}])", "max_tokens"},
          Bad{R"("max_tokens":0,"messages":[{"role":"user","content":"hi"}])", "max_tokens"},
          Bad{R"("max_tokens":1)", "messages"},
          Bad{R"("max_tokens":1,"messages":"hi")", "messages"},
          Bad{R"("max_tokens":1,"messages":[])", "messages"},
          Bad{R"("max_tokens":1,"messages":[1])", "messages[0]"},
          Bad{R"("max_tokens":1,"messages":[{"content":"x"}])", "messages[0].role"},
          Bad{R"("max_tokens":1,"messages":[{"role":"wizard","content":"x"}])", "messages[0].role"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user"}])", "messages[0].content"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":7}])", "messages[0].content"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":[{"type":"hologram"}]}])",
              "messages[0].content[0].type"},
          Bad{R"("max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t"}]}])",
              "messages[0].content[0].name"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","content":7}]}])",
              "messages[0].content[0].content"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"system":7)", "system"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"some"})",
              "thinking.type"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_config":{"effort":"some"})",
              "output_config.effort"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"xml"}})",
              "output_config.format.type"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_format":{"type":"json_schema"})",
              "output_format.schema"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"stop_sequences":[""])",
              "stop_sequences"},
          Bad{R"("max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[{"description":"x"}])",
              "tools[0].name"},
      }) {
    auto request = parse(bad.fields);
    ASSERT_FALSE(request) << bad.fields;
    EXPECT_EQ(request.error().status, 400u);
    EXPECT_EQ(request.error().param, bad.param) << bad.fields << ": " << request.error().message;
  }
  EXPECT_TRUE(parse(R"("messages":[{"role":"user","content":"hi"}])", MessagesUse::kCount))
      << "counting needs no cap";
}

// The same tools in either form: the same are offered, and what one dialect refuses the other refuses, too,
// in the same words.
TEST(MessagesRequestTest, RuleB25BothDialectsCheckToolsAlike) {
  const std::string first = R"({"type":"object","properties":{"a":{"type":"string","pattern":"\\d+"}}})";
  const std::string long_name(129, 'x');
  struct Case {
    std::string name, description, schema;
    bool good = false;
  };
  for (const Case& c :
       {Case{R"("f")", R"("F.")", first, true}, Case{R"("a.b:c/d-e_1")", "null", "null", true},
        Case{R"("")", "null", first}, Case{R"("a b")", "null", first},
        Case{"\"" + long_name + "\"", "null", first}, Case{"7", "null", first}, Case{"null", "null", first},
        Case{R"("f")", "7", first}, Case{R"("f")", "null", "7"}, Case{R"("f")", "null", "[]"},
        Case{R"("taken")", "null", first}}) {
    auto chat_body = parse_body(fmt::format(
        R"({{"messages":[{{"role":"user","content":"hi"}}],"tools":[{{"type":"function","function":{{"name":"taken"}}}},)"
        R"({{"type":"function","function":{{"name":{},"description":{},"parameters":{}}}}}]}})",
        c.name, c.description, c.schema));
    ASSERT_TRUE(chat_body);
    auto chat = parse_chat_request(*chat_body, 8192);
    auto message =
        with(fmt::format(R"("tools":[{{"name":"taken"}},{{"name":{},"description":{},"input_schema":{}}}])",
                         c.name, c.description, c.schema));
    ASSERT_EQ(chat.has_value(), c.good) << c.name << c.description << c.schema;
    ASSERT_EQ(message.has_value(), c.good) << c.name << c.description << c.schema;
    if (c.good) {
      ASSERT_EQ(chat->tools.offered.size(), 2u);
      const auto& one = chat->tools.offered[1].at("function");
      const auto& other = message->tools.offered[1].at("function");
      EXPECT_EQ(one.at("name"), other.at("name"));
      if (c.schema != "null") {
        EXPECT_EQ(one.at("parameters"), other.at("parameters"));
      }
      continue;
    }
    std::string words = chat.error().message;
    const std::pair<std::string, std::string> kPlaces[] = {{"function.", ""}, {"parameters", "input_schema"}};
    for (const auto& [theirs, ours] : kPlaces) {
      for (std::size_t at = words.find(theirs); at != std::string::npos; at = words.find(theirs))
        words.replace(at, theirs.size(), ours);
    }
    EXPECT_EQ(words, message.error().message);
    EXPECT_EQ(message.error().status, 400u);
  }
}

}  // namespace
}  // namespace strata::gateway
