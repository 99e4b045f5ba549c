// How long one request takes and may take, on virtual time.

#include <algorithm>

#include "gateway/testing/generation_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::GenerationTest;

TEST_F(GenerationTest, TimingsAreInTheWholeAnswerAndInTheLastChunkOfAStream) {
  const auto answer = [this](bool stream, bool include_usage) -> Running& {
    GenerationJob request = job(stream);
    request.format = make_chat_format({.id = "chatcmpl-1"}, {.include_usage = include_usage});
    Running& first = start(job(false));  // holds the sequence
    Running& run = start(std::move(request));
    world_.advance(milliseconds(30));
    finish();
    EXPECT_TRUE(first.over);
    world_.advance(milliseconds(200));
    say(GeneratedToken{.id = 7, .index = 0});
    world_.advance(milliseconds(50));
    say(GeneratedToken{.id = 8, .index = 1});
    finish();
    return run;
  };
  const auto check = [](const boost::json::value& timings) {
    EXPECT_EQ(timings.at("queue_ms"), 30);
    EXPECT_EQ(timings.at("cache_n"), 1);
    EXPECT_EQ(timings.at("prompt_n"), 3);
    EXPECT_EQ(timings.at("prompt_ms"), 200);
    EXPECT_EQ(timings.at("predicted_n"), 2);
    EXPECT_EQ(timings.at("predicted_ms"), 50);
    EXPECT_EQ(timings.at("predicted_per_second"), 40);
  };
  const std::string text = answer(false, false).read();
  check(boost::json::parse(text.substr(text.find("\r\n\r\n") + 4)).at("timings"));
  for (bool include_usage : {false, true}) {
    const auto chunks = answer(true, include_usage).chunks();
    check(chunks.back().at("timings"));
    EXPECT_EQ(chunks.back().as_object().contains("usage"), include_usage);
    for (std::size_t i = 0; i + 1 < chunks.size(); ++i)
      EXPECT_FALSE(chunks[i].as_object().contains("timings"));
  }
}

TEST_F(GenerationTest, ADeadlineBeforeTheFirstTokenIsAnErrorWaitingOrReading) {
  for (bool stream : {false, true}) {
    GenerationJob first_job = job(stream), second_job = job(stream);
    first_job.timeout = milliseconds(300);
    second_job.timeout = milliseconds(100);
    Running& first = start(std::move(first_job));
    Running& second = start(std::move(second_job));
    ASSERT_EQ(view_.waiting, 1u);
    world_.advance(milliseconds(99));
    EXPECT_FALSE(second.over);
    world_.advance(milliseconds(1));
    EXPECT_TRUE(second.over);
    EXPECT_EQ(view_.waiting, 0u);
    EXPECT_FALSE(first.exchange->finished());
    world_.advance(milliseconds(200));
    EXPECT_TRUE(call().cancelled);
    end(Status(Code::kCancelled, "cancelled"));
    EXPECT_TRUE(first.over);
    for (Running* run : {&first, &second}) {
      EXPECT_TRUE(run->exchange->finished());
      EXPECT_TRUE(run->read().starts_with(stream ? "HTTP/1.1 200" : "HTTP/1.1 504"));
      EXPECT_NE(run->received.find("deadline_exceeded"), std::string::npos);
      EXPECT_EQ(run->received.find("data: [DONE]") != std::string::npos, stream);
    }
  }
  EXPECT_EQ(count("strata_requests_total", "timeout"), 4);
}

TEST_F(GenerationTest, ADeadlineWithinTheAnswerGivesWhatIsThere) {
  for (bool stream : {false, true}) {
    GenerationJob request = job(stream);
    request.timeout = milliseconds(100);
    Running& run = start(std::move(request));
    generate("A violin is");
    world_.advance(milliseconds(100));
    EXPECT_TRUE(run.exchange->finished());
    EXPECT_TRUE(call().cancelled);
    end(Status(Code::kCancelled, "cancelled"));
    EXPECT_TRUE(run.over);
    const std::string& text = run.read();
    if (stream) {
      EXPECT_EQ(run.content(), "A violin is");
    } else {
      EXPECT_NE(text.find(R"("content":"A violin is")"), std::string::npos);
    }
    EXPECT_NE(text.find(R"("finish_reason":"length","finish_detail":"deadline")"), std::string::npos);
  }
  EXPECT_EQ(count("strata_requests_total", "timeout"), 2);
}

TEST_F(GenerationTest, ADeadlineLeavesTheChoicesThatHadNotBegunEmpty) {
  for (bool between : {false, true}) {  // two choices, or within the second
    const std::size_t calls = engine_.calls.size();
    GenerationJob request = job(false);
    request.answers = request.choices = 4;
    request.return_reuse = true;
    request.timeout = milliseconds(100);
    Running& run = start(std::move(request));
    generate("One.");
    say(EngineFinished{.reason = EngineFinished::Reason::kEndToken, .prompt_tokens_reused = 1});
    if (!between) {
      end();
      generate("Two");
    }
    world_.advance(milliseconds(100));
    end();
    EXPECT_TRUE(run.over);
    EXPECT_EQ(engine_.calls.size() - calls, between ? 1u : 2u);
    const std::string& text = run.read();
    const auto body = boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
    const auto& choices = body.at("choices").as_array();
    ASSERT_EQ(choices.size(), 4u);
    EXPECT_EQ(choices[0].at("message").at("content"), "One.");
    EXPECT_FALSE(choices[0].as_object().contains("finish_detail"));
    EXPECT_EQ(choices[1].at("message").at("content"), between ? "" : "Two");
    for (std::size_t i : {1, 2, 3}) EXPECT_EQ(choices[i].at("finish_detail"), "deadline");
    EXPECT_EQ(choices[3].at("message").at("content"), "");
  }
}

TEST_F(GenerationTest, ADeadlineDoesNotWaitForAnEngineThatIsAway) {
  GenerationJob request = job(true);
  request.timeout = seconds(10);
  Running& run = start(std::move(request));
  generate("A violin");
  end(Status(Code::kUnavailable, "socket closed"));
  world_.advance(seconds(10));
  EXPECT_TRUE(run.over);
  EXPECT_EQ(run.content(), "A violin");
  EXPECT_NE(run.received.find(R"("finish_detail":"deadline")"), std::string::npos);
  EXPECT_EQ(view_.running, 0u);
}

TEST_F(GenerationTest, ADeadlineBehindTheEndIsNothing) {
  GenerationJob request = job(false);
  request.timeout = seconds(10);
  Running& run = start(std::move(request));
  generate("A violin");
  finish();
  const std::string answer = run.read();
  world_.advance(seconds(20));
  EXPECT_EQ(run.read(), answer);
  EXPECT_EQ(count("strata_requests_total", "timeout"), 0);
}

// What is asked for to happen later, and when.
class WatchedExecutor final : public actor::Executor {
 public:
  explicit WatchedExecutor(std::shared_ptr<actor::Executor> real) : real_(std::move(real)) {}
  void post(std::function<void()> work) override { real_->post(std::move(work)); }
  void post_after(actor::Clock::duration delay, std::function<void()> work) override {
    longest = std::max(longest, delay);
    ++posted;
    real_->post_after(delay, std::move(work));
  }
  actor::Clock::time_point now() const override { return real_->now(); }

  actor::Clock::duration longest{0};
  uint32_t posted = 0;

 private:
  std::shared_ptr<actor::Executor> real_;
};

// A timer holds the memory of its request, and servers answer hundreds of requests a second.
TEST_F(GenerationTest, NoTimerOutlivesItsRequestForLong) {
  auto watched = std::make_shared<WatchedExecutor>(executor_);
  executor_ = watched;
  GenerationJob request = job(true);
  request.timeout = std::chrono::hours(1);
  Running& run = start(std::move(request));
  generate("A violin");
  finish();
  ASSERT_TRUE(run.over);
  EXPECT_GT(watched->posted, 0u);
  EXPECT_LE(watched->longest, seconds(10));
  const uint32_t posted = watched->posted;
  world_.advance(seconds(60));
  EXPECT_EQ(watched->posted, posted) << "it still looks at the clock";
}

}  // namespace
}  // namespace strata::gateway
