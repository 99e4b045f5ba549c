#include "services/cli/chat_session.h"

#include <gmock/gmock.h>

#include <thread>

#include "services/cli/scripted_server.h"

namespace strata::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }
std::string delta(const std::string& text) {
  return event(R"({"choices":[{"index":0,"delta":{"content":")" + text + R"("}}]})");
}
const std::string kHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
const std::string kUsage =
    event(R"({"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}})") + event("[DONE]");

TEST(ChatSession, StreamsAnAnswerAndRemembersIt) {
  ScriptedServer server({{kHead, delta("A "), ": keepalive\n\n", delta("violin") + delta("."), kUsage},
                         {kHead, delta("Yes"), kUsage}});
  ChatOptions options;
  options.system = "Be brief.";
  options.temperature = 0;
  options.seed = 7;
  ChatSession session(server.url(), options);
  std::vector<std::string> pieces;
  auto usage =
      session.ask("What?", [&](ChatSession::Piece piece) { pieces.emplace_back(piece.text); }, nullptr);
  ASSERT_TRUE(usage.has_value()) << usage.error().message();
  EXPECT_THAT(pieces, ElementsAre("A ", "violin", "."));
  EXPECT_EQ(usage->prompt_tokens, 11u);
  EXPECT_EQ(usage->answer_tokens, 3u);
  ASSERT_TRUE(session.ask("Sure?", [](ChatSession::Piece) {}, nullptr).has_value());
  EXPECT_EQ(session.turns(), 2u);
  EXPECT_THAT(server.requests.at(0),
              HasSubstr(R"({"role":"system","content":"Be brief."},{"role":"user","content":"What?"})"));
  EXPECT_THAT(server.requests.at(0), HasSubstr(R"("seed":7)"));
  EXPECT_THAT(server.requests.at(1),
              HasSubstr(R"({"role":"assistant","content":"A violin."},{"role":"user","content":"Sure?"})"));
}

TEST(ChatSession, ForgetsAPromptThatWasRefused) {
  std::string body = R"({"error":{"message":"the queue is full","type":"overloaded"}})";
  ScriptedServer server(
      {{fmt::format("HTTP/1.1 429 Too Many Requests\r\nContent-Length: {}\r\n\r\n{}", body.size(), body)},
       {kHead, delta("half"), event(R"({"error":{"message":"the engine went away"}})")}});
  ChatSession session(server.url(), {});
  auto refused = session.ask("Hi", [](ChatSession::Piece) {}, nullptr);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(), "the queue is full (HTTP 429)");
  auto broken = session.ask("Hi", [](ChatSession::Piece) {}, nullptr);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().message(), "the engine went away");
  EXPECT_EQ(session.turns(), 0u);
}

TEST(ChatSession, KeepsWhatHadComeWhenItIsStopped) {
  ScriptedServer server({{kHead, delta("Once"), "<hold>"}});
  ChatSession session(server.url(), {});
  std::atomic<bool> stop{false};
  auto stopped = session.ask("Story", [&](ChatSession::Piece) { stop = true; }, &stop);
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  EXPECT_EQ(session.turns(), 1u);
}

TEST(ChatSession, TellsThinkingFromAnswering) {
  ScriptedServer server(
      {{kHead, event(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})"), delta("4"), kUsage}});
  ChatSession session(server.url(), {});
  std::vector<std::string> pieces;
  ASSERT_TRUE(session.ask(
      "2+2", [&](ChatSession::Piece p) { pieces.push_back((p.reasoning ? "?" : "!") + std::string(p.text)); },
      nullptr));
  EXPECT_THAT(pieces, ElementsAre("?hm", "!4"));
}

TEST(ChatSession, SaysThatNobodyListens) {
  Url url;
  {
    ScriptedServer server({});
    url = server.url();
  }
  ChatSession session(url, {});
  auto answer = session.ask("Hi", [](ChatSession::Piece) {}, nullptr);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST(Printable, LetsNothingThroughThatMovesTheCursor) {
  EXPECT_EQ(printable("a\x1b[31mb\r\x07\x7f\n\tc \xc2\x9b \xc3\xa4"), "a[31mb\n\tc  \xc3\xa4");
}

TEST(ErrorText, FallsBackToTheBody) {
  EXPECT_EQ(error_text("<html>bad gateway</html>"), "<html>bad gateway</html>");
  EXPECT_EQ(error_text(R"({"error":{"message":"no"}})"), "no");
}

TEST(EventReader, TakesEventsInAnyPieces) {
  std::string text = "data: a\ndata:b\r\n\r\n: comment\n\nevent: x\ndata: c\n\n";
  for (std::size_t step : {std::size_t{1}, std::size_t{3}, text.size()}) {
    std::vector<std::string> events;
    EventReader reader([&](const std::string& data) { events.push_back(data); });
    for (std::size_t at = 0; at < text.size(); at += step)
      reader.feed(std::string_view(text).substr(at, step));
    EXPECT_THAT(events, ElementsAre("a\nb", "c"));
  }
}

}  // namespace
}  // namespace strata::cli
