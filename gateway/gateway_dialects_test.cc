// Calls and Anthropic's dialect over real sockets, with a scripted engine behind: the cases of the API by
// number.

#include <algorithm>

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using testing::chat;
using testing::kChat;
using testing::RawClient;
using testing::RawResponse;

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object",)"
    R"("properties":{"city":{"type":"string"}}}}},)"
    R"({"type":"function","function":{"name":"get_time"}}])";
constexpr const char* kTwoCalls =
    "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";

std::string message(std::string_view more = "", int max_tokens = 64) {
  return fmt::format(
      R"({{"model":"any","max_tokens":{},"messages":[{{"role":"user","content":"What is a violin?"}}]{}}})",
      max_tokens, more);
}

class DialectsTest : public testing::GatewayTest {
 protected:
  static std::vector<boost::json::value> data_lines(const std::string& body) {
    std::vector<boost::json::value> out;
    for (std::size_t at = body.find("data: {"); at != std::string::npos; at = body.find("data: {", at + 1)) {
      out.push_back(boost::json::parse(body.substr(at + 6, body.find("\n\n", at) - at - 6)));
    }
    return out;
  }
  std::string last_prompt() { return gateway::test_tokenizer().decode(engine_->seen().back().prompt_tokens); }
};

TEST_F(DialectsTest, Case13CallsWholeWithUniqueIds) {
  engine_->set_script({.text = kTwoCalls});
  start();
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    auto choice = json(post(kChat, chat(kTools))).at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_EQ(choice.at("message").at("content"), "I look.");
    const auto& calls = choice.at("message").at("tool_calls").as_array();
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].at("function").at("arguments"), R"({"city": "Paris"})");
    for (const auto& call : calls) ids.emplace_back(call.at("id").as_string());
  }
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::unique(ids).size(), 0u);
  EXPECT_EQ(metric(R"(strata_finish_total{reason="tool_calls"})"), 2);
}

TEST_F(DialectsTest, Case14CallsStreamedPieceByPiece) {
  engine_->set_script({.text = kTwoCalls});
  start();
  std::vector<std::string> arguments(2), finishes;
  std::string content;
  for (const auto& chunk : data_lines(post(kChat, chat(std::string(kTools) + R"(,"stream":true)")).body)) {
    const auto& choice = chunk.at("choices").at(0);
    const auto& delta = choice.at("delta").as_object();
    if (!choice.at("finish_reason").is_null()) finishes.emplace_back(choice.at("finish_reason").as_string());
    if (const auto* text = delta.if_contains("content")) content += std::string_view(text->as_string());
    const auto* calls = delta.if_contains("tool_calls");
    if (calls == nullptr) continue;
    ASSERT_EQ(calls->as_array().size(), 1u) << "two calls in one delta";
    const auto& call = calls->at(0);
    const auto index = static_cast<std::size_t>(call.at("index").to_number<int64_t>());
    EXPECT_EQ(call.as_object().contains("id"), arguments.at(index).empty());
    EXPECT_EQ(call.at("function").as_object().contains("name"), arguments.at(index).empty());
    arguments.at(index) += arguments.at(index).empty() ? " " : "";
    arguments.at(index) += std::string_view(call.at("function").at("arguments").as_string());
  }
  EXPECT_EQ(arguments, (std::vector<std::string>{R"( {"city": "Paris"})", " {}"}));
  EXPECT_EQ(finishes, std::vector<std::string>{"tool_calls"});
  EXPECT_EQ(content, "I look.");
}

TEST_F(DialectsTest, Case15ChoicesThatForceACallLetThePromptBeginIt) {
  start();
  auto choose = [this](const std::string& choice, const char* text) {
    engine_->set_script({.text = text});
    RawResponse response = post(kChat, chat(fmt::format(R"({},"tool_choice":{})", kTools, choice)));
    EXPECT_EQ(response.status, 200) << response.body;
    return json(response).at("choices").at(0);
  };
  auto named = choose(R"({"type":"function","function":{"name":"get_time"}})", " {}}\n</tool_call> and more");
  EXPECT_TRUE(last_prompt().ends_with("assistant\n<tool_call>\n{\"name\": \"get_time\", \"arguments\":"));
  EXPECT_EQ(named.at("message").at("tool_calls").as_array().size(), 1u);
  EXPECT_EQ(named.at("message").at("tool_calls").at(0).at("function").at("name"), "get_time");
  EXPECT_TRUE(named.at("message").at("content").is_null());
  EXPECT_EQ(named.at("finish_reason"), "tool_calls");

  auto required = choose("\"required\"", kTwoCalls + 19);  // behind the mark and its line break
  EXPECT_TRUE(last_prompt().ends_with("assistant\n<tool_call>\n"));
  EXPECT_EQ(required.at("message").at("tool_calls").as_array().size(), 2u);
  auto one = choose(R"("required","parallel_tool_calls":false)", kTwoCalls + 19);
  EXPECT_EQ(one.at("message").at("tool_calls").as_array().size(), 1u);

  auto unruly = choose("\"required\"", "No.");
  EXPECT_EQ(unruly.at("finish_reason"), "stop");
  EXPECT_EQ(unruly.at("finish_detail"), "malformed_tool_call");

  auto none = choose("\"none\"", kTwoCalls);
  EXPECT_FALSE(none.at("message").as_object().contains("tool_calls"));
  EXPECT_EQ(last_prompt().find("get_time"), std::string::npos) << "the tools were offered";
  for (const char* refused : {R"(,"tool_choice":"required")"})
    EXPECT_EQ(post(kChat, chat(refused)).status, 400);
}

TEST_F(DialectsTest, RuleB24ACallThatTheCapCutIsNoCall) {
  engine_->set_script({.text = kTwoCalls});
  start();
  auto choice = json(post(kChat, chat(std::string(kTools) + R"(,"max_tokens":12)"))).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("message").at("content"), "I look.");
  EXPECT_FALSE(choice.at("message").as_object().contains("tool_calls"));
}

TEST_F(DialectsTest, Case31AMessageWithItsUsage) {
  start();
  RawResponse response = post(kMessages, message());
  ASSERT_EQ(response.status, 200) << response.body;
  auto body = json(response);
  EXPECT_EQ(body.at("type"), "message");
  EXPECT_EQ(body.at("role"), "assistant");
  EXPECT_EQ(body.at("model"), "org/demo");
  EXPECT_TRUE(std::string(body.at("id").as_string()).starts_with("msg_"));
  EXPECT_EQ(body.at("content").at(0).at("text"), "A violin is a small stringed instrument.");
  EXPECT_EQ(body.at("stop_reason"), "end_turn");
  EXPECT_TRUE(body.at("stop_sequence").is_null());
  EXPECT_EQ(json(post(kMessages, message("", 2))).at("stop_reason"), "max_tokens");
  EXPECT_EQ(metric(R"(strata_requests_total{endpoint="messages",outcome="ok"})"), 2);
}

TEST_F(DialectsTest, Case31FaultsHaveTheDialectsShape) {
  start();
  for (const std::string& bad :
       {std::string("{"), std::string(R"({"messages":[]})"), message(R"(,"system":7)")}) {
    RawResponse response = post(kMessages, bad);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(json(response).at("type"), "error");
    EXPECT_EQ(json(response).at("error").at("type"), "invalid_request_error");
    EXPECT_FALSE(json(response).at("error").as_object().contains("param"));
  }
  EXPECT_EQ(json(post("/v1/messages/count_tokens", "[]")).at("type"), "error");
  EXPECT_EQ(json(get(kMessages)).at("type"), "error");
  EXPECT_EQ(json(post("/v1/messages/batches", "{}")).at("error").at("type"), "api_error");
  engine_->set_context(5);
  ASSERT_TRUE(until([this] { return json(get("/props")).at("context_length") == 5; }));
  EXPECT_EQ(json(post(kMessages, message(R"(,"stream":true)"))).at("type"), "error");
}

TEST_F(DialectsTest, Case32AStreamOfEventsEqualsTheWholeMessage) {
  start();
  auto whole = json(post(kMessages, message()));
  RawResponse stream = post(kMessages, message(R"(,"stream":true)"));
  EXPECT_EQ(stream.headers["content-type"], "text/event-stream");
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(stream.body.starts_with("event: message_start\ndata: "));
  auto events = data_lines(stream.body);
  const auto prompt = static_cast<int64_t>(engine_->seen().back().prompt_tokens.size());
  EXPECT_EQ(events.front().at("message").at("usage").at("input_tokens"), prompt);
  std::string text;
  for (const auto& event : events) {
    if (event.at("type") == "content_block_delta")
      text += std::string_view(event.at("delta").at("text").as_string());
  }
  EXPECT_EQ(text, std::string_view(whole.at("content").at(0).at("text").as_string()));
  const auto& last = events[events.size() - 2];
  EXPECT_EQ(last.at("delta").at("stop_reason"), "end_turn");
  int64_t total = 0;
  for (const char* part : {"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}) {
    total += last.at("usage").at(part).to_number<int64_t>();
  }
  EXPECT_EQ(total, prompt);
  EXPECT_EQ(last.at("usage").at("output_tokens"), whole.at("usage").at("output_tokens"));
  EXPECT_EQ(events.back().at("type"), "message_stop");
}

TEST_F(DialectsTest, Case32PingsWhileAnAnswerWaitsAndOneErrorEventWhenItFails) {
  settings_.gateway_keepalive_ms.set(100);
  engine_->set_script({.prefill = std::chrono::seconds(60)});
  start();
  {
    RawClient waiting(port_);
    waiting.request("POST", kMessages, message(R"(,"stream":true)"));
    EXPECT_TRUE(waiting.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n"));
  }
  engine_->set_script({.fails_after = 3});
  RawResponse failed = post(kMessages, message(R"(,"stream":true)"));
  EXPECT_NE(failed.body.find("event: error\ndata: {\"type\":\"error\""), std::string::npos);
  EXPECT_EQ(failed.body.find("message_stop"), std::string::npos);
}

TEST_F(DialectsTest, Case33ToolUseIsABlockOfItsOwn) {
  engine_->set_script({.text = kTwoCalls});
  start();
  const std::string tools =
      R"(,"tools":[{"name":"get_weather","input_schema":{"type":"object"}},{"name":"get_time","input_schema":{}}])";
  auto whole = json(post(kMessages, message(tools)));
  EXPECT_EQ(whole.at("stop_reason"), "tool_use");
  ASSERT_EQ(whole.at("content").as_array().size(), 3u);
  EXPECT_EQ(whole.at("content").at(1).at("input").at("city"), "Paris");
  EXPECT_NE(whole.at("content").at(1).at("id"), whole.at("content").at(2).at("id"));
  engine_->set_script({.text = " {}}\n</tool_call>"});
  auto named = json(post(kMessages, message(tools + R"(,"tool_choice":{"type":"tool","name":"get_time"})")));
  EXPECT_EQ(named.at("content").at(0).at("name"), "get_time");
  EXPECT_EQ(post(kMessages, message(tools + R"(,"tool_choice":{"type":"tool","name":"no"})")).status, 400);
}

TEST_F(DialectsTest, Case34TheStopSequenceIsNamed) {
  start();
  auto body = json(post(kMessages, message(R"(,"stop_sequences":["###"," small"])")));
  EXPECT_EQ(body.at("content").at(0).at("text"), "A violin is a");
  EXPECT_EQ(body.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(body.at("stop_sequence"), " small");
}

TEST_F(DialectsTest, Case35CountsWhatARunReadsAndNeedsNoSequence) {
  engine_->set_sequences(1);
  start();
  for (const char* more : {"", R"(,"system":"Be kind.","tools":[{"name":"f","input_schema":{}}])",
                           R"(,"thinking":{"type":"enabled","budget_tokens":1024})",
                           R"(,"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"})"}) {
    ASSERT_EQ(post("/v1/messages?beta=true", message(more)).status, 200);
    EXPECT_EQ(json(post("/v1/messages/count_tokens?beta=true", message(more))).at("input_tokens"),
              engine_->seen().back().prompt_tokens.size())
        << more;
  }
  engine_->set_script({.endless = true, .per_token = milliseconds(5)});
  RawClient busy(port_);
  busy.request("POST", kMessages, message(R"(,"stream":true)", 3000));
  ASSERT_TRUE(busy.read_until("content_block_delta"));
  EXPECT_EQ(post("/v1/messages/count_tokens", message()).status, 200);
}

TEST_F(DialectsTest, RuleB15AMessageThinksOnlyWhenAskedAndCase20ThinkingIsABlock) {
  settings_.thinking_default.set({"on"});
  engine_->set_script({.text = "Carry the one.\n</think>\n\n65"});
  start();
  auto thought = json(post(kMessages, message(R"(,"thinking":{"type":"enabled","budget_tokens":32})")));
  EXPECT_TRUE(last_prompt().ends_with("<think>\n"));
  EXPECT_EQ(thought.at("content").at(0).at("thinking"), "Carry the one.");
  EXPECT_EQ(thought.at("content").at(1).at("text"), "65");
  post(kMessages, message());
  EXPECT_FALSE(last_prompt().ends_with("<think>\n"));
}

}  // namespace
}  // namespace strata::gateway
