// Several answers of one request, on virtual time: side by side where there are sequences, in turns with
// others where there are not.

#include "gateway/testing/generation_fixture.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;

class ChoicesTest : public testing::GenerationTest {
 protected:
  GenerationJob job_of(uint32_t answers, bool stream = false) {
    GenerationJob request = job(stream);
    request.answers = request.choices = answers;
    request.format = make_chat_format({.id = "chatcmpl-1"}, {.include_usage = true});
    return request;
  }
  testing::ScriptedEngine::Call& call(std::size_t index) { return *engine_.calls.at(index); }
  void say_to(std::size_t index, EngineEvent event) {
    call(index).say(std::move(event));
    world_.deliver_all();
  }
  void generate(std::size_t index, std::string_view text) {
    for (const int32_t id : test_tokenizer().encode_trusted(text)) {
      say_to(index, GeneratedToken{
                        .id = id, .index = static_cast<uint32_t>(said_[&call(index)]++), .logprob = -0.1f});
    }
  }
  void finish(std::size_t index) {
    say_to(index, EngineFinished{.reason = EngineFinished::Reason::kEndToken, .prompt_tokens_reused = 1});
    end(index);
  }
  void end(std::size_t index, Status status = {}) { say_to(index, EngineEnded{std::move(status)}); }
  std::size_t calls() const { return engine_.calls.size(); }

  static boost::json::value body_of(Running& run) {
    const std::string& text = run.read();
    return boost::json::parse(text.substr(text.find("\r\n\r\n") + 4));
  }
  static std::map<int64_t, std::string> texts_of(Running& run) {
    std::map<int64_t, std::string> texts;
    for (const auto& chunk : run.chunks()) {
      for (const auto& choice : chunk.at("choices").as_array()) {
        const auto& delta = choice.at("delta").as_object();
        if (delta.contains("content"))
          texts[choice.at("index").to_number<int64_t>()] += std::string_view(delta.at("content").as_string());
      }
    }
    return texts;
  }
};

TEST_F(ChoicesTest, TheFirstReadsThePromptAndTheOthersBeginBesideIt) {
  engine_ready(1000, 3);
  Running& run = start(job_of(3, true));
  ASSERT_EQ(calls(), 1u) << "the prompt is read once";
  EXPECT_EQ(view_.running, 1u);
  generate(0, "One");
  ASSERT_EQ(calls(), 3u);
  EXPECT_EQ(view_.running, 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(call(i).request.sampling.seed, 42u + i);
    EXPECT_EQ(call(i).request.prompt_tokens, call(0).request.prompt_tokens);
  }
  generate(2, "Th");
  generate(1, "Two");
  generate(2, "ree");
  EXPECT_EQ(texts_of(run), (std::map<int64_t, std::string>{{0, "One"}, {1, "Two"}, {2, "Three"}}))
      << "they are told as they come";
  finish(2);
  EXPECT_EQ(view_.running, 2u);
  finish(0);
  EXPECT_FALSE(run.exchange->finished());
  generate(1, ".");
  finish(1);
  EXPECT_TRUE(run.over);
  EXPECT_EQ(view_.running, 0u);
  EXPECT_EQ(calls(), 3u);
  const auto chunks = run.chunks();
  std::map<int64_t, int> roles, finishes;
  for (const auto& chunk : chunks) {
    for (const auto& choice : chunk.at("choices").as_array()) {
      const int64_t index = choice.at("index").to_number<int64_t>();
      roles[index] += choice.at("delta").as_object().contains("role") ? 1 : 0;
      finishes[index] += choice.at("finish_reason").is_null() ? 0 : 1;
    }
  }
  EXPECT_EQ(roles, (std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(finishes, roles);
  const auto& usage = chunks.back().at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 4);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 1) << "of the one that read it";
  std::size_t tokens = 0;
  for (const char* text : {"One", "Th", "ree", "Two", "."})
    tokens += test_tokenizer().encode_trusted(text).size();
  EXPECT_EQ(usage.at("completion_tokens"), tokens);
}

// So that the others need to read one token only.
TEST_F(ChoicesTest, OnlyTheFirstToEachPromptIsAskedToKeepItsState) {
  engine_ready(1000, 4);
  reuse_.checkpoints = {.every_tokens = 0};
  GenerationJob request = job_of(2);
  request.prompts.front().tokens = std::vector<int32_t>(40, 7);
  request.prompts.push_back({.tokens = std::vector<int32_t>(60, 8)});
  start(std::move(request));
  ASSERT_EQ(calls(), 2u) << "each prompt has to be read";
  const auto positions = [this](std::size_t index) {
    std::vector<uint32_t> out;
    for (const CheckpointPosition& each : call(index).request.checkpoints) out.push_back(each.position);
    return out;
  };
  EXPECT_EQ(call(0).request.prompt_tokens.size(), 40u);
  EXPECT_EQ(call(1).request.prompt_tokens.size(), 60u);
  EXPECT_EQ(positions(0), std::vector<uint32_t>{39});
  EXPECT_EQ(positions(1), std::vector<uint32_t>{59});
  generate(1, "B");
  ASSERT_EQ(calls(), 3u);
  EXPECT_EQ(call(2).request.prompt_tokens.size(), 60u) << "the other one is not read yet";
  generate(0, "A");
  ASSERT_EQ(calls(), 4u);
  EXPECT_EQ(positions(2), std::vector<uint32_t>{});
  EXPECT_EQ(positions(3), std::vector<uint32_t>{});

  Running& alone = start(job_of(1));
  EXPECT_EQ(view_.waiting, 1u);
  for (std::size_t i = 0; i < 4; ++i) finish(i);
  EXPECT_EQ(positions(4), std::vector<uint32_t>{});
  finish(4);
  EXPECT_TRUE(alone.over);
}

TEST_F(ChoicesTest, TakeNoMoreThanIsFreeAndTheirTurnForTheRest) {
  engine_ready(1000, 2);
  Running& many = start(job_of(5));
  generate(0, "a");
  ASSERT_EQ(calls(), 2u);
  EXPECT_EQ(view_.waiting, 0u) << "its further answers are no requests";
  Running& other = start(job_of(1));
  Running& third = start(job_of(1));
  EXPECT_EQ(view_.waiting, 2u);
  finish(0);  // the third answer was in line before the others came
  ASSERT_EQ(calls(), 3u);
  EXPECT_EQ(call(2).request.sampling.seed, 44u);
  finish(1);
  ASSERT_EQ(calls(), 4u);
  EXPECT_EQ(call(3).request.request_id, "r2") << "the fourth answer has to wait for its turn";
  finish(2);  // it runs alone at its end, and goes on
  ASSERT_EQ(calls(), 5u);
  EXPECT_EQ(call(4).request.request_id, "r1");
  finish(3);
  EXPECT_TRUE(other.over);
  ASSERT_EQ(calls(), 6u);
  EXPECT_EQ(call(5).request.request_id, "r3");
  finish(5);
  EXPECT_TRUE(third.over);
  ASSERT_EQ(calls(), 7u);
  finish(4);
  finish(6);
  EXPECT_TRUE(many.over);
  EXPECT_EQ(view_.running, 0u);
  EXPECT_EQ(body_of(many).at("choices").as_array().size(), 5u);
}

TEST_F(ChoicesTest, OfSeveralSideBySideTheLikeliestAreGiven) {
  engine_ready(1000, 3);
  GenerationJob request = job_of(3);
  request.choices = 1;
  Running& run = start(std::move(request));
  const auto answer = [&](std::size_t index, std::string_view text, float logprob) {
    EXPECT_TRUE(call(index).request.sampling.logprobs);
    uint32_t at = 0;
    for (const int32_t id : test_tokenizer().encode_trusted(text))
      say_to(index, GeneratedToken{.id = id, .index = at++, .logprob = logprob});
  };
  answer(0, "worst", -3.0f);
  answer(2, "best", -0.5f);
  finish(2);
  answer(1, "middle", -1.0f);
  finish(1);
  finish(0);
  const auto body = body_of(run);
  ASSERT_EQ(body.at("choices").as_array().size(), 1u);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "best");
}

TEST_F(ChoicesTest, AFaultOfOneEndsAllAndGivesEverythingBack) {
  engine_ready(1000, 3);
  Running& run = start(job_of(4, true));
  generate(0, "a");
  ASSERT_EQ(calls(), 3u);
  end(1, Status(Code::kInternal, "the logits are broken"));
  EXPECT_NE(run.read().find("the logits are broken"), std::string::npos);
  EXPECT_TRUE(run.exchange->finished());
  EXPECT_TRUE(call(0).cancelled && call(2).cancelled);
  EXPECT_FALSE(run.over);
  EXPECT_EQ(view_.running, 2u) << "until the engine is done with them";
  end(0, Status(Code::kCancelled, "cancelled"));
  end(2, Status(Code::kCancelled, "cancelled"));
  EXPECT_TRUE(run.over);
  EXPECT_EQ(view_.running, 0u);
  EXPECT_EQ(calls(), 3u) << "the fourth has begun nevertheless";
  EXPECT_EQ(count("strata_requests_total", "engine_error"), 1);
}

TEST_F(ChoicesTest, AClientThatLeavesEndsAllOfThem) {
  engine_ready(1000, 2);
  Running& run = start(job_of(4, true));
  generate(0, "a");
  ASSERT_EQ(calls(), 2u);
  run.exchange->set_client_gone();
  world_.deliver_all();
  EXPECT_TRUE(call(0).cancelled && call(1).cancelled);
  end(0, Status(Code::kCancelled, "cancelled"));
  end(1, Status(Code::kCancelled, "cancelled"));
  EXPECT_TRUE(run.over);
  EXPECT_EQ(view_.running, 0u);
  EXPECT_EQ(count("strata_finish_total", "cancelled"), 2);
  start(job_of(1));
  EXPECT_EQ(calls(), 3u) << "nothing of the other is left in line";
}

TEST_F(ChoicesTest, ADeadlineCutsThoseThatRunAndEmptiesTheRest) {
  engine_ready(1000, 2);
  GenerationJob request = job_of(3);
  request.timeout = milliseconds(100);
  Running& run = start(std::move(request));
  generate(0, "Half");
  generate(1, "Part");
  world_.advance(milliseconds(101));
  const auto body = body_of(run);
  const char* texts[] = {"Half", "Part", ""};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& choice = body.at("choices").at(i);
    EXPECT_EQ(choice.at("message").at("content"), texts[i]);
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_EQ(choice.at("finish_detail"), "deadline");
  }
  EXPECT_TRUE(call(0).cancelled && call(1).cancelled);
  end(0, Status(Code::kCancelled, "cancelled"));
  end(1, Status(Code::kCancelled, "cancelled"));
  EXPECT_TRUE(run.over);
  EXPECT_EQ(calls(), 2u);
}

TEST_F(ChoicesTest, EachGoesOnWhereItWasWhenTheEngineComesBack) {
  engine_ready(1000, 2);
  Running& run = start(job_of(2, true));
  generate(0, "One");
  generate(1, "Two");
  end(0, Status(Code::kUnavailable, "socket closed"));
  end(1, Status(Code::kUnavailable, "socket closed"));
  engine_ready(1000, 2);
  world_.advance(milliseconds(100));
  ASSERT_EQ(calls(), 4u);
  for (std::size_t i = 2; i < 4; ++i) {
    const bool first = call(i).request.sampling.seed == 42u;
    EXPECT_EQ(call(i).request.generated_tokens, test_tokenizer().encode_trusted(first ? "One" : "Two"));
    said_[&call(i)] = call(i).request.generated_tokens.size();
    generate(i, first ? "1" : "2");
    finish(i);
  }
  EXPECT_EQ(texts_of(run), (std::map<int64_t, std::string>{{0, "One1"}, {1, "Two2"}}));
  EXPECT_TRUE(run.over);
}

TEST_F(ChoicesTest, AnEngineThatStaysAwayEndsTheRequestOnce) {
  engine_ready(1000, 2);
  Running& run = start(job_of(2, true));
  generate(0, "One");
  end(1, Status(Code::kUnavailable, "socket closed"));
  world_.advance(std::chrono::seconds(61));
  EXPECT_EQ(run.chunks().back().at("error").at("code"), "engine_unavailable");
  end(0, Status(Code::kUnavailable, "socket closed"));
  EXPECT_TRUE(run.over);
  EXPECT_EQ(count("strata_requests_total", "timeout"), 1);
}

TEST_F(ChoicesTest, GoOnOneAfterAnotherWhenTheServerTakesNobodyAnyMore) {
  engine_ready(1000, 2);
  Running& run = start(job_of(3));
  tell(admission_, Admission::Drain{});
  world_.deliver_all();
  generate(0, "a");
  EXPECT_EQ(calls(), 1u);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(calls(), i + 1);
    finish(i);
  }
  EXPECT_TRUE(run.over);
  EXPECT_EQ(body_of(run).at("choices").as_array().size(), 3u);
}

TEST_F(ChoicesTest, EachIsSeenInASequenceOfItsOwn) {
  engine_ready(1000, 2);
  Running& run = start(job_of(2));
  ASSERT_EQ(run.generation->running().size(), 1u);
  generate(0, "a");
  generate(1, "bb");
  const auto views = run.generation->running();
  ASSERT_EQ(views.size(), 2u);
  EXPECT_NE(views[0].ticket, views[1].ticket);
  EXPECT_EQ(views[1].generated_tokens, test_tokenizer().encode_trusted("bb").size());
  finish(0);
  EXPECT_EQ(run.generation->running().size(), 1u);
  finish(1);
  EXPECT_TRUE(run.generation->running().empty());
}

// Two times 40 ms of reading and 60 of telling, of which most lie side by side.
TEST_F(ChoicesTest, TimingsAreAddedUp) {
  engine_ready(1000, 2);
  Running& run = start(job_of(2));
  world_.advance(milliseconds(40));
  generate(0, "a");
  world_.advance(milliseconds(40));
  generate(1, "b");
  world_.advance(milliseconds(20));
  finish(0);
  world_.advance(milliseconds(40));
  finish(1);
  const auto timings = body_of(run).at("timings");
  EXPECT_EQ(timings.at("prompt_ms"), 80);
  EXPECT_EQ(timings.at("predicted_ms"), 120);
  EXPECT_EQ(timings.at("predicted_n"), 2);
}

}  // namespace
}  // namespace strata::gateway
