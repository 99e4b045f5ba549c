// The body of /v1/responses: fields, tools with their names, items as messages (api-cases 27 and 29).

#include "gateway/api/response_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gateway/api/json_text.h"

namespace strata::gateway {
namespace {

ApiResult<ResponseRequest> parse(const std::string& fields) {
  return parse_response_request(parse_body("{" + fields + "}").value(), 1000, "77");
}
ApiResult<ResponseRequest> with(const std::string& fields) { return parse(R"("input":"hi",)" + fields); }

ApiResult<ItemMessages> messages_of(const std::string& items, const std::string& past = "[]",
                                    std::string_view instructions = "") {
  auto request = parse(fmt::format(R"("input":{})", items));
  if (!request) return tl::unexpected(std::move(request).error());
  const boost::json::object earlier = parse_body(fmt::format(R"({{"items":{}}})", past)).value();
  return response_messages(instructions, earlier.at("items").get_array(), request->input.items);
}
std::string list_of(const std::string& items, const std::string& past = "[]",
                    std::string_view instructions = "") {
  auto made = messages_of(items, past, instructions);
  return made ? to_json(made->messages.list) : made.error().message;
}

TEST(ResponseRequestTest, Case27StringsAndMessageItemsAreTheSame) {
  const std::string expected = R"([{"role":"user","content":"hi"}])";
  for (
      const char* items :
      {R"("hi")", R"([{"role":"user","content":"hi"}])",
       R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"h"},{"type":"input_text","text":"i"}]}])"}) {
    EXPECT_EQ(list_of(items), expected) << items;
  }
  auto made = messages_of(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"So"}])");
  EXPECT_TRUE(made->messages.continues_answer);
}

TEST(ResponseRequestTest, InputItemsAreKeptWithTypeIdAndParts) {
  auto request =
      parse(R"("input":[{"role":"user","content":"hi"},{"id":"mine","type":"reasoning","summary":[]},)"
            R"({"type":"function_call_output","call_id":"c","output":"x"}])");
  ASSERT_TRUE(request);
  EXPECT_EQ(
      to_json(request->input.items),
      R"([{"role":"user","content":[{"type":"input_text","text":"hi"}],"type":"message","id":"msg_77_i0","status":"completed"},)"
      R"({"id":"mine","type":"reasoning","summary":[]},)"
      R"({"type":"function_call_output","call_id":"c","output":"x","id":"out_77_i2","status":"completed"}])");
}

TEST(ResponseRequestTest, InstructionsAndLeadingSystemMessagesAreOne) {
  EXPECT_EQ(
      list_of(
          R"([{"role":"developer","content":"B"},{"role":"system","content":"C"},{"role":"user","content":"hi"},)"
          R"({"role":"system","content":"D"}])",
          "[]", "A"),
      R"([{"role":"system","content":"A\n\nB\n\nC"},{"role":"user","content":"hi"},{"role":"system","content":"D"}])");
  EXPECT_EQ(list_of(R"("hi")", "[]", "x-anthropic-billing-header: 1\nA"),
            R"([{"role":"system","content":"A"},{"role":"user","content":"hi"}])");
}

TEST(ResponseRequestTest, ReasoningTextAndCallsAreOneTurn) {
  const std::string turn =
      R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},)"
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},)"
      R"({"type":"function_call","call_id":"c1","name":"f","namespace":"ns","arguments":"{\"a\": 1}"},)"
      R"({"type":"custom_tool_call","call_id":"c2","name":"shout","input":"HEY"},)"
      R"({"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"20"},{"type":"input_image"}]},)"
      R"({"type":"custom_tool_call_output","call_id":"c2","output":"done"})";
  const std::string expected =
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"I look.","reasoning_content":"Hm.","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"ns__f","arguments":{"a":1}}},)"
      R"({"id":"c2","type":"function","function":{"name":"shout","arguments":{"input":"HEY"}}}]},)"
      R"({"role":"tool","content":"20[image omitted]","tool_call_id":"c1"},)"
      R"({"role":"tool","content":"done","tool_call_id":"c2"}])";
  EXPECT_EQ(list_of(fmt::format(R"([{{"role":"user","content":"hi"}},{}])", turn)), expected);
  // The same out of the store.
  EXPECT_EQ(list_of("[]", fmt::format(R"([{{"type":"message","role":"user","content":"hi"}},{}])", turn)),
            expected);
}

TEST(ResponseRequestTest, ANewThoughtOrTextAfterAnotherIsANewTurn) {
  EXPECT_EQ(
      list_of(
          R"([{"role":"user","content":"hi"},{"role":"assistant","content":"A"},{"role":"assistant","content":"B"},)"
          R"({"type":"reasoning","summary":[{"type":"summary_text","text":"S"}]},{"role":"assistant","content":"C"}])"),
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"A"},{"role":"assistant","content":"B"},)"
      R"({"role":"assistant","content":"C","reasoning_content":"S"}])");
  // Empty turns are dropped, as calls that were cut off are.
  EXPECT_EQ(
      list_of(
          R"([{"role":"user","content":"hi"},{"type":"reasoning","summary":[]},{"role":"assistant","content":""},)"
          R"({"type":"function_call","call_id":"c","name":"f","arguments":"{","status":"incomplete"},)"
          R"({"role":"user","content":"so?"}])"),
      R"([{"role":"user","content":"hi"},{"role":"user","content":"so?"}])");
}

TEST(ResponseRequestTest, ReasoningIsReadFromWhateverCarriesIt) {
  const auto reasoning = [](const std::string& item) {
    return list_of(fmt::format(R"([{{"type":"reasoning",{}}},{{"role":"assistant","content":"A"}}])", item));
  };
  const std::string sealed = R"("summary":[{"type":"summary_text","text":"S"}],"encrypted_content":)";
  EXPECT_NE(reasoning(R"("content":[{"type":"reasoning_text","text":"T"}],)" + sealed + R"("strata-text:E")")
                .find("\"T\""),
            std::string::npos);
  EXPECT_NE(reasoning(sealed + R"("strata-text:E")").find(R"("reasoning_content":"E")"), std::string::npos);
  EXPECT_EQ(reasoning(sealed + R"("gAAAA")").find("reasoning_content"), std::string::npos)
      << "what only others can read";
  EXPECT_NE(reasoning(sealed + "null").find(R"("reasoning_content":"S")"), std::string::npos);
  EXPECT_EQ(sealed_reasoning("E"), "strata-text:E");
}

TEST(ResponseRequestTest, HostedItemsAreLeftOutAndNamed) {
  auto made = messages_of(
      R"([{"role":"user","content":"hi"},{"type":"web_search_call","id":"w"},{"type":"mcp_list_tools"},)"
      R"({"type":"local_shell_call_output","output":"x"}])");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->messages.list.size(), 1u);
  ASSERT_EQ(made->warnings.size(), 3u);
  EXPECT_EQ(made->warnings[0], "input[1]: items of the type web_search_call are left out");
}

TEST(ResponseRequestTest, ReferencesAreListedAndResolved) {
  auto request = parse(R"("input":[{"type":"item_reference","id":"msg_1_0"},{"id":"msg_2_0"}])");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->input.references, (std::vector<std::string>{"msg_1_0", "msg_2_0"}));
  const auto item = [](const char* text) {
    return boost::json::object{{"type", "message"}, {"role", "user"}, {"content", text}};
  };
  request->input.resolve({{"msg_1_0", item("A")}, {"msg_2_0", item("B")}});
  auto made = response_messages("", {}, request->input.items);
  EXPECT_EQ(to_json(made->messages.list), R"([{"role":"user","content":"A"},{"role":"user","content":"B"}])");
}

TEST(ResponseRequestTest, ItemsAreRefusedByName) {
  for (const auto& [items, param] : std::vector<std::pair<const char*, const char*>>{
           {"7", "input"},
           {"[7]", "input[0]"},
           {"[{}]", "input[0].type"},
           {R"([{"type":"strange"}])", "input[0].type"},
           {R"([{"role":"tool","content":"x"}])", "input[0].role"},
           {R"([{"type":"message","content":"x"}])", "input[0].role"},
           {R"([{"role":"user"}])", "input[0].content"},
           {R"([{"role":"user","content":7}])", "input[0].content"},
           {R"([{"role":"user","content":[{"type":"video"}]}])", "input[0].content[0].type"},
           {R"([{"role":"user","content":[{"type":"input_image"}]}])", "input[0].content"},
           {R"([{"type":"function_call"}])", "input[0].name"},
           {R"([{"type":"function_call","name":"f","arguments":{}}])", "input[0].arguments"},
           {R"([{"type":"custom_tool_call","name":"f","input":7}])", "input[0].input"},
           {R"([{"type":"function_call_output","call_id":7}])", "input[0].call_id"},
           {R"([{"type":"function_call_output","output":7}])", "input[0].output"},
           {R"([{"type":"reasoning","content":7}])", "input[0].content"},
           {R"([{"type":"reasoning","summary":[7]}])", "input[0].summary"},
           {"[]", "input"},
           {R"([{"type":"reasoning","summary":[]}])", "input"}}) {
    auto made = messages_of(items);
    ASSERT_FALSE(made) << items;
    EXPECT_EQ(made.error().param, param) << items << ": " << made.error().message;
  }
  EXPECT_TRUE(
      messages_of(R"([{"role":"user","content":[{"type":"input_image"}]},{"role":"user","content":"so?"}])"))
      << "an old image";
}

TEST(ResponseRequestTest, FieldsAreRefusedByName) {
  for (
      const auto& [field, param] : std::vector<std::pair<const char*, const char*>>{
          {R"("background":true)", "background"},
          {R"("conversation":"conv_1")", "conversation"},
          {R"("prompt":{"id":"p"})", "prompt"},
          {R"("truncation":"middle")", "truncation"},
          {R"("stream":"yes")", "stream"},
          {R"("store":1)", "store"},
          {R"("max_output_tokens":0)", "max_output_tokens"},
          {R"("temperature":3)", "temperature"},
          {R"("top_logprobs":21)", "top_logprobs"},
          {R"("include":"x")", "include"},
          {R"("include":[1])", "include"},
          {R"("metadata":{"a":1})", "metadata"},
          {R"("metadata":[])", "metadata"},
          {R"("instructions":7)", "instructions"},
          {R"("previous_response_id":7)", "previous_response_id"},
          {R"("text":{"format":{"type":"xml"}})", "text.format.type"},
          {R"("text":{"format":{"type":"json_schema","name":"x"}})", "text.format.schema"},
          {R"("reasoning":{"effort":"some"})", "reasoning.effort"},
          {R"("tools":{})", "tools"},
          {R"("tools":[7])", "tools"},
          {R"("tools":[{"name":"f"}])", "tools[0].type"},
          {R"("tools":[{"type":"function"}])", "tools[0].name"},
          {R"("tools":[{"type":"function","name":"f","parameters":[]}])", "tools[0].parameters"},
          {R"("tools":[{"type":"custom","name":"f","format":7}])", "tools[0].format"},
          {R"("tools":[{"type":"custom","name":"f","format":{"definition":7}}])",
           "tools[0].format.definition"},
          {R"("tools":[{"type":"namespace","tools":[]}])", "tools[0].name"},
          {R"("tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}])",
           "tools[0].tools[0].name"},
          {R"("tools":[{"type":"function","name":"n__f"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}])",
           "tools[1].tools[0].name"},
          {R"("tool_choice":"required")", "tool_choice"},
          {R"("tool_choice":"some")", "tool_choice"},
          {R"("tool_choice":7)", "tool_choice"},
          {R"("tool_choice":{"type":"web_search"})", "tool_choice"},
          {R"("tool_choice":{"type":"function","name":"f"})", "tool_choice"},
          {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.tools"},
          {R"("tool_choice":{"type":"allowed_tools","mode":"some","tools":[]})", "tool_choice.mode"}}) {
    auto request = with(field);
    ASSERT_FALSE(request) << field;
    EXPECT_EQ(request.error().param, param) << field << ": " << request.error().message;
  }
  EXPECT_EQ(parse(R"("model":"m")").error().param, "input");
  std::string many;
  for (int i = 0; i < 17; ++i) many += fmt::format(R"({}"k{}":"v")", i == 0 ? "" : ",", i);
  EXPECT_EQ(with(fmt::format(R"("metadata":{{{}}})", many)).error().param, "metadata");
}

TEST(ResponseRequestTest, ReadsWhatItGenerates) {
  auto request = with(
      R"("max_output_tokens":7,"stream":true,"store":false,"instructions":"I","previous_response_id":"resp_1",)"
      R"("include":["reasoning.encrypted_content","message.output_text.logprobs"],"reasoning":{"effort":"none"},)"
      R"("text":{"format":{"type":"json_object"},"verbosity":"low"},"top_p":0.5,"return_progress":true)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->chat.common.max_tokens, 7u);
  EXPECT_TRUE(request->chat.common.stream && request->chat.common.logprobs && request->chat.return_progress);
  EXPECT_FALSE(request->store);
  EXPECT_TRUE(request->sealed_reasoning);
  EXPECT_EQ(request->instructions, "I");
  EXPECT_EQ(request->previous, "resp_1");
  EXPECT_EQ(request->chat.thinking.on, false);
  EXPECT_EQ(request->chat.form.kind, AnswerForm::Kind::kObject);
  EXPECT_EQ(request->serial, "77");
  const auto& echo = request->echo;
  EXPECT_EQ(to_json(echo.at("text")), R"({"format":{"type":"json_object"},"verbosity":"low"})");
  EXPECT_EQ(to_json(echo.at("reasoning")), R"({"effort":"none","summary":null})");
  EXPECT_EQ(echo.at("previous_response_id"), "resp_1");
  EXPECT_EQ(echo.at("max_output_tokens"), 7);
  EXPECT_EQ(echo.at("tool_choice"), "auto");

  auto plain = with(R"("x_anything":1)");
  ASSERT_TRUE(plain);
  EXPECT_TRUE(plain->store);
  EXPECT_FALSE(plain->chat.common.max_tokens.has_value());
  EXPECT_TRUE(plain->echo.at("previous_response_id").is_null());
  EXPECT_TRUE(parse(R"("previous_response_id":"resp_1")")) << "going on without new input";
}

TEST(ResponseRequestTest, Case29ToolsAreNamedForTheModelAndForTheClient) {
  auto request = with(
      R"("tools":[{"type":"web_search"},{"type":"function","name":"f","description":"F.","strict":true,)"
      R"("parameters":{"type":"object"}},)"
      R"({"type":"namespace","name":"mcp__w","description":"W.","tools":[{"type":"function","name":"g"},{"type":"custom","name":"h"}]},)"
      R"({"type":"custom","name":"patch","description":"P.","format":{"type":"grammar","syntax":"lark","definition":"start: X"}}])");
  ASSERT_TRUE(request) << request.error().message;
  const Tools& tools = request->chat.tools;
  const std::string text =
      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false})";
  EXPECT_EQ(
      to_json(tools.offered),
      fmt::format(
          R"([{{"type":"function","function":{{"name":"f","description":"F.","parameters":{{"type":"object"}}}}}},)"
          R"({{"type":"function","function":{{"name":"mcp__w__g"}}}},)"
          R"({{"type":"function","function":{{"name":"mcp__w__h","parameters":{0}}}}},)"
          R"({{"type":"function","function":{{"name":"patch","description":"P.\n\nThe input follows this lark grammar:\nstart: X",)"
          R"("parameters":{0}}}}}])",
          text));
  EXPECT_EQ(tools.strict, (std::set<std::string>{"f", "mcp__w__h", "patch"}));
  EXPECT_EQ(request->tools.at("mcp__w__g").name, "g");
  EXPECT_EQ(request->tools.at("mcp__w__g").name_space, "mcp__w");
  EXPECT_TRUE(request->tools.at("patch").free_form);
  ASSERT_EQ(request->warnings.size(), 1u);
  EXPECT_NE(request->warnings[0].find("web_search"), std::string::npos);
  EXPECT_EQ(request->echo.at("tools").as_array().size(), 4u);
  EXPECT_EQ(model_tool_name("mcp__w__", "g"), "mcp__w__g");
}

TEST(ResponseRequestTest, ChoicesOfToolsBecomeRules) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"f"},)"
      R"({"type":"custom","name":"c"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"g"}]}],)";
  const auto rule = [&](const std::string& choice) {
    auto request = with(fmt::format(R"({}"tool_choice":{})", tools, choice));
    EXPECT_TRUE(request) << request.error().message;
    return request->chat.tools;
  };
  EXPECT_FALSE(rule("\"auto\"").rule.required);
  EXPECT_TRUE(rule("\"none\"").offered.empty());
  EXPECT_TRUE(rule("\"required\"").rule.required);
  EXPECT_EQ(rule(R"({"type":"function","name":"f"})").rule.named, "f");
  EXPECT_EQ(rule(R"({"type":"custom","name":"c"})").rule.named, "c");
  EXPECT_EQ(rule(R"({"type":"function","name":"g","namespace":"n"})").rule.named, "n__g");
  const Tools allowed = rule(
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"web_search"},7]})");
  EXPECT_EQ(allowed.offered.size(), 1u);
  EXPECT_TRUE(allowed.rule.required);
  EXPECT_TRUE(with(tools + R"("parallel_tool_calls":false)")->chat.tools.rule.one);
}

}  // namespace
}  // namespace strata::gateway
