// Rules about real clients and shared servers that no other test has in whole, over real sockets. The numbers
// are those of docs/api.md.

#include <gmock/gmock.h>

#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/gateway_fixture.h"

namespace strata::gateway {
namespace {

using testing::chat;
using ::testing::HasSubstr;
using testing::kChat;
using testing::kFirstPieces;
using ::testing::Not;
using testing::RawClient;
using testing::RawResponse;

constexpr const char* kMessages = "/v1/messages";

class RulesTest : public testing::GatewayTest {
 protected:
  std::string last_prompt() { return test_tokenizer().decode(engine_->seen().back().prompt_tokens); }
};

TEST_F(RulesTest, RuleB6AnAnswerThatIsGoneOnWithMayComeInParts) {
  start();
  for (const char* content : {R"("A violin is")", R"([{"type":"text","text":"A violin is"}])",
                              R"([{"type":"text","text":"A violin"},{"type":"text","text":" is"}])"}) {
    RawResponse response = post(
        kChat,
        fmt::format(R"({{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","content":{}}}]}})",
                    content));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(last_prompt().ends_with("<|im_start|>assistant\nA violin is")) << content;
  }
}

TEST_F(RulesTest, RuleB13TheCacheFieldsAreAlwaysThere) {
  start();
  const auto has_fields = [](const boost::json::value& usage) {
    return usage.at("input_tokens").is_int64() && usage.at("cache_read_input_tokens").is_int64() &&
           usage.at("cache_creation_input_tokens").is_int64();
  };
  const std::string body = R"({"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_TRUE(has_fields(json(post(kMessages, body)).at("usage")));
  const std::string stream = post(kMessages, body.substr(0, body.size() - 1) + R"(,"stream":true})").body;
  int usages = 0;
  for (std::size_t at = stream.find("data: {"); at != std::string::npos;
       at = stream.find("data: {", at + 1)) {
    const auto event = boost::json::parse(stream.substr(at + 6, stream.find("\n\n", at) - at - 6));
    if (event.at("type") == "message_start") {
      EXPECT_TRUE(has_fields(event.at("message").at("usage")));
    } else if (event.at("type") == "message_delta") {
      EXPECT_TRUE(has_fields(event.at("usage")));
    } else {
      continue;
    }
    ++usages;
  }
  EXPECT_EQ(usages, 2);
}

TEST_F(RulesTest, RuleB14CountingTakesAHistoryOfThinkingAndCallsAndNeedsNoCap) {
  start();
  constexpr std::string_view kFields =
      R"("system":[{"type":"text","text":"Be kind."}],"tools":[{"name":"f","input_schema":{"type":"object"}}],)"
      R"("messages":[{"role":"user","content":"q"},{"role":"assistant","content":[)"
      R"({"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"I look."},)"
      R"({"type":"tool_use","id":"t","name":"f","input":{}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"20"}]}])";
  RawResponse counted = post("/v1/messages/count_tokens", fmt::format(R"({{"model":"m",{}}})", kFields));
  ASSERT_EQ(counted.status, 200) << counted.body;
  ASSERT_EQ(post(kMessages, fmt::format(R"({{"model":"m","max_tokens":4,{}}})", kFields)).status, 200);
  EXPECT_EQ(json(counted).at("input_tokens"), engine_->seen().back().prompt_tokens.size());
}

TEST_F(RulesTest, RuleB31EveryErrorHasItsFourMembers) {
  settings_.gateway_body_bytes_max.set(4096);
  start();
  const auto get_as = [this](std::string_view method, std::string_view path) {
    RawClient client(port_);
    client.request(method, path);
    return client.response();
  };
  const std::pair<int, RawResponse> errors[] = {
      {400, post(kChat, "{")},
      {400, post(kChat, chat(R"(,"temperature":"hot")"))},
      {403, post(kChat, chat(), "Origin: https://evil.example\r\n")},
      {404, get("/v1/nothing")},
      {404, get("/v1/models/nothing")},
      {404, get("/v1/responses/resp_nothing")},
      {405, get_as("DELETE", kChat)},
      {413, post(kChat, chat("", std::string(5000, 'x')))},
      {415, post(kChat, chat(), "Content-Encoding: gzip\r\n")},
      {501, post("/v1/embeddings", "{}")},
  };
  for (const auto& [status, response] : errors) {
    EXPECT_EQ(response.status, status) << response.body;
    const auto error = json(response).at("error").as_object();
    EXPECT_EQ(error.size(), 4u) << response.body;
    EXPECT_TRUE(error.at("message").is_string() && error.at("type").is_string()) << response.body;
    for (const char* name : {"param", "code"})
      EXPECT_TRUE(error.at(name).is_string() || error.at(name).is_null()) << response.body;
  }
}

// Also while it runs, and to whoever has the key.
TEST_F(RulesTest, RuleI5NoPageShowsWhatWasSaid) {
  start();
  engine_->set_script(
      {.text = "A xylophone is heard.", .endless = true, .per_token = std::chrono::milliseconds(5)});
  RawClient running(port_);
  running.request("POST", kChat, chat(R"(,"stream":true,"max_tokens":3000)", "What is a glockenspiel?"));
  ASSERT_TRUE(running.read_until(kFirstPieces));
  for (const char* path :
       {"/", "/live", "/health", "/ready", "/metrics", "/props", "/slots", "/v1/models", "/openapi.json"}) {
    const RawResponse page = get(path);
    EXPECT_EQ(page.status, 200) << path;
    EXPECT_THAT(page.body, Not(HasSubstr("glocken"))) << path;
    EXPECT_THAT(page.body, Not(HasSubstr("xylo"))) << path;
  }
}

TEST_F(RulesTest, RuleK7TheContextIsWhatOneRequestMayUseHoweverManyThereAre) {
  engine_->set_sequences(8);
  engine_->set_context(64);
  start();
  EXPECT_TRUE(until([this] { return json(get("/props")).at("context_length") == 64; }));
  const auto ask = [this](std::size_t tokens) {
    std::string prompt = "100";
    for (std::size_t i = 1; i < tokens; ++i) prompt += ",100";
    return post("/v1/completions", fmt::format(R"({{"prompt":[{}],"max_tokens":5}})", prompt));
  };
  EXPECT_EQ(ask(63).status, 200);
  EXPECT_EQ(engine_->seen().back().max_tokens, 1u);
  EXPECT_EQ(json(ask(64)).at("error").at("code"), "context_length_exceeded");
}

}  // namespace
}  // namespace strata::gateway
