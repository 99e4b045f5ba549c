#include "services/cli/probe_client.h"

#include <gmock/gmock.h>

#include "services/cli/scripted_server.h"

namespace strata::cli {
namespace {

using ::testing::HasSubstr;

const std::string kHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
std::string event(const std::string& json) { return "data: " + json + "\n\n"; }
std::string delta(const std::string& key, const std::string& text) {
  return event(R"({"choices":[{"index":0,"delta":{")" + key + R"(":")" + text + R"("}}]})");
}
std::string usage(const std::string& details) {
  return event(R"({"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":3)" + details + "}}") +
         event("[DONE]");
}
std::string answer(const std::string& head, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}", head, body.size(), body);
}
const ProbeRequest kRequest{.messages = {{"system", "Be brief."}, {"user", "\"Why?\""}}, .max_tokens = 5};

TEST(ProbeClient, AsksGreedilyAndCountsWhatWasReused) {
  ScriptedServer server({{kHead, event(R"({"choices":[{"index":0,"delta":{"role":"assistant"}}]})"),
                          delta("reasoning_content", "Hm. "), delta("content", "So"), delta("content", "!"),
                          usage(R"(,"prompt_tokens_details":{"cached_tokens":32})")}});
  const auto got = ask_chat(server.url(), kRequest, nullptr);
  ASSERT_TRUE(got) << got.error().message();
  EXPECT_EQ(got->text, "So!");
  EXPECT_EQ(got->reasoning, "Hm. ");
  EXPECT_EQ(got->prompt_tokens, 40u);
  EXPECT_EQ(got->cached_tokens, 32u);
  EXPECT_GT(got->first_token_seconds, 0);
  const std::string& sent = server.requests.at(0);
  for (const char* part : {"POST /v1/chat/completions",
                           R"({"role":"system","content":"Be brief."},{"role":"user","content":"\"Why?\""})",
                           R"("max_tokens":5)", R"("temperature":0)", R"("stream":true)",
                           R"("include_usage":true)", R"("enable_thinking":false)"})
    EXPECT_THAT(sent, HasSubstr(part));
}

TEST(ProbeClient, AnAnswerWithoutTextHasATimeAndNothingReusedUnlessTheServerSaysSo) {
  ScriptedServer server({{kHead, usage("")}});
  const auto got = ask_chat(server.url(), kRequest, nullptr);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->text, "");
  EXPECT_EQ(got->cached_tokens, 0u);
  EXPECT_GT(got->first_token_seconds, 0);
}

TEST(ProbeClient, HandsOnWhatIsWrong) {
  ScriptedServer server({{answer("400 Bad Request", R"({"error":{"message":"too long"}})")},
                         {kHead, delta("content", "So"), event(R"({"error":{"message":"gone"}})")},
                         {kHead, delta("content", "So"), event("[DONE]")}});
  const auto refused = ask_chat(server.url(), kRequest, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "too long (HTTP 400)");
  const auto broken = ask_chat(server.url(), kRequest, nullptr);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().message(), "gone");
  const auto uncounted = ask_chat(server.url(), kRequest, nullptr);
  ASSERT_FALSE(uncounted);
  EXPECT_EQ(uncounted.error().code(), Code::kDataLoss);
}

TEST(ProbeClient, NamesTheServedModelAndItsContext) {
  ScriptedServer server({{answer("200 OK", R"({"data":[{"id":"strata-demo","context_length":4096}]})")},
                         {answer("200 OK", R"({"data":[{"id":"other"}]})")},
                         {answer("200 OK", "<html>")},
                         {answer("404 Not Found", R"({"error":{"message":"what?"}})")}});
  const auto model = served_model(server.url(), nullptr);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->name, "strata-demo");
  EXPECT_EQ(model->context_tokens, 4096u);
  const auto silent = served_model(server.url(), nullptr);
  ASSERT_TRUE(silent);
  EXPECT_EQ(silent->name, "other");
  EXPECT_EQ(silent->context_tokens, 0u);
  const auto page = served_model(server.url(), nullptr);
  ASSERT_FALSE(page);
  EXPECT_EQ(page.error().code(), Code::kDataLoss);
  const auto missing = served_model(server.url(), nullptr);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message(), "/v1/models: what? (HTTP 404)");
}

}  // namespace
}  // namespace strata::cli
