#include "gpu-worker/constraint_maker.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "gpu-worker/answer_constraint.h"
#include "services/grammar/test_support.h"

namespace strata::gpu_worker {
namespace {

constexpr std::chrono::seconds kPatience{20};

class SilentListener final : public GenerationListener {
  void on_event(GenerationEvent) override {}
};

std::shared_ptr<Generation> generation_of(const ConstraintWish& wish, std::vector<int32_t> known = {}) {
  GenerationRequest request;
  request.prompt = {'p'};
  request.generated = std::move(known);
  request.constraint = wish;
  return std::make_shared<Generation>(std::move(request), std::make_shared<SilentListener>());
}

ConstraintMakerOptions options() {
  return {.vocab = 300, .load_vocabulary = [] { return grammar::byte_vocabulary(); }};
}

// What `done` hears, later.
std::future<Status> constrain(ConstraintMaker& maker, std::shared_ptr<Generation> generation) {
  auto heard = std::make_shared<std::promise<Status>>();
  maker.constrain(std::move(generation), [heard](Status status) { heard->set_value(std::move(status)); });
  return heard->get_future();
}
Status wait(std::future<Status> heard) {
  if (heard.wait_for(kPatience) != std::future_status::ready)
    return {Code::kDeadlineExceeded, "heard nothing"};
  return heard.get();
}

TEST(ConstraintMaker, ConstrainsAGeneration) {
  ConstraintMaker maker(options());
  const auto generation = generation_of({.gbnf = "root ::= \"a\" [bc]"}, {'a'});
  const Status status = wait(constrain(maker, generation));
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_NE(generation->constraint(), nullptr);
  EXPECT_EQ(generation->constraint()->mask()['b' / 32], 3U << 'b' % 32);
}

TEST(ConstraintMaker, SaysWhatIsWrong) {
  ConstraintMaker maker(options());
  const auto refusal = [&](const ConstraintWish& wish, std::vector<int32_t> known = {}) {
    const auto generation = generation_of(wish, std::move(known));
    Status status = wait(constrain(maker, generation));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    EXPECT_EQ(generation->constraint(), nullptr);
    return status.message();
  };
  EXPECT_NE(refusal({.gbnf = "root ::= missing"}).find("constraint.gbnf: "), std::string::npos);
  EXPECT_NE(refusal({.gbnf = "root ::= missing"}).find("missing"), std::string::npos);
  EXPECT_NE(refusal({.gbnf = "root ::= \"a\"{1,999999999}"}).find("constraint.gbnf: "), std::string::npos)
      << "too large";
  EXPECT_NE(refusal({.gbnf = "root ::= \"a\""}, {'b'}).find("generated_tokens[0]"), std::string::npos);
}

TEST(ConstraintMaker, ABudgetOfThinkingWaitsForNothing) {
  std::promise<void> may_load;
  ConstraintMaker maker({.vocab = 300, .load_vocabulary = [&] {
                           may_load.get_future().wait();
                           return grammar::byte_vocabulary();
                         }});
  const auto waiting = generation_of({.gbnf = "root ::= \"a\""});
  auto heard = constrain(maker, waiting);
  const auto budget = generation_of({.thinking_end = 7, .thinking_tokens_max = 0});
  EXPECT_TRUE(wait(constrain(maker, budget)).ok());
  EXPECT_EQ(budget->constraint()->mask()[0], 1U << 7);
  EXPECT_EQ(heard.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  may_load.set_value();
  EXPECT_TRUE(wait(std::move(heard)).ok()) << "once the tokens are there";
}

TEST(ConstraintMaker, WithoutTokensNothingCanBeConstrained) {
  ConstraintMaker maker({.vocab = 300, .load_vocabulary = [] {
                           return Result<std::shared_ptr<const grammar::Vocabulary>>(
                               fail(Code::kNotFound, "no tokenizer in the file"));
                         }});
  const Status status = wait(constrain(maker, generation_of({.gbnf = "root ::= \"a\""})));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("no tokenizer in the file"), std::string::npos);
}

TEST(ConstraintMaker, DoesNothingForWhoHasGivenUp) {
  ConstraintMaker maker(options());
  const auto generation = generation_of({.gbnf = "root ::= \"a\""});
  generation->cancel();
  EXPECT_EQ(wait(constrain(maker, generation)).code(), Code::kCancelled);
  EXPECT_EQ(generation->constraint(), nullptr);
}

TEST(ConstraintMaker, RefusesWhatIsTooMuchAndEndsWhatWaitsWhenItStops) {
  std::promise<void> may_load;
  ConstraintMaker maker({.vocab = 300,
                         .load_vocabulary =
                             [&] {
                               may_load.get_future().wait();
                               return grammar::byte_vocabulary();
                             },
                         .waiting_max = 2});
  std::vector<std::future<Status>> heard;
  for (int i = 0; i < 2; ++i) heard.push_back(constrain(maker, generation_of({.gbnf = "root ::= \"a\""})));
  EXPECT_EQ(wait(constrain(maker, generation_of({.gbnf = "root ::= \"a\""}))).code(),
            Code::kResourceExhausted);
  std::thread stopping([&] { maker.stop(); });
  for (auto& each : heard) EXPECT_EQ(wait(std::move(each)).code(), Code::kUnavailable);
  may_load.set_value();
  stopping.join();
  EXPECT_EQ(wait(constrain(maker, generation_of({.gbnf = "root ::= \"a\""}))).code(), Code::kUnavailable);
  maker.stop();
}

TEST(ConstraintMaker, GoesOnWithMasksBehindTheRequest) {
  ConstraintMakerOptions slow = options();
  slow.cache.prepare = std::chrono::milliseconds(0);
  ConstraintMaker maker(std::move(slow));
  for (const char* text : {"root ::= \"a\" [bc]{20}", "root ::= [a-z]{2,90}"})
    EXPECT_TRUE(wait(constrain(maker, generation_of({.gbnf = text}))).ok());
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (maker.is_preparing() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_FALSE(maker.is_preparing());
  EXPECT_TRUE(wait(constrain(maker, generation_of({.gbnf = "root ::= \"a\""}))).ok()) << "it still listens";
}

TEST(ConstraintMaker, FinishesWhatAnswersThatRunNeed) {
  ConstraintMaker maker(options());
  // Of a grammar that the maker does not know, so nobody makes its masks meanwhile.
  const auto generation = generation_of({.gbnf = "that one"});
  auto made = AnswerConstraint::create(generation->request(), grammar::compiled("root ::= \"a\" [bc]"), 300);
  ASSERT_TRUE(made.has_value());
  generation->constrain(*made);
  ASSERT_TRUE((*made)->accept('a').ok());
  ASSERT_FALSE((*made)->ready());
  std::promise<std::thread::id> heard;
  maker.finish(generation, [&] { heard.set_value(std::this_thread::get_id()); });
  auto finished = heard.get_future();
  ASSERT_EQ(finished.wait_for(kPatience), std::future_status::ready);
  EXPECT_NE(finished.get(), std::this_thread::get_id());
  EXPECT_TRUE((*made)->ready());
  EXPECT_TRUE((*made)->finished().ok());
  EXPECT_EQ((*made)->mask()['b' / 32], 3U << 'b' % 32);
}

TEST(ConstraintMaker, GivesUpWhatIsNotFinishedWhenItStops) {
  ConstraintMaker maker(options());
  const auto generation = generation_of({.thinking_end = 7, .thinking_tokens_max = 0});
  ASSERT_TRUE(wait(constrain(maker, generation)).ok());
  maker.stop();
  bool heard = false;
  maker.finish(generation, [&] { heard = true; });
  EXPECT_TRUE(heard);
  EXPECT_TRUE(generation->constraint()->ready());
  EXPECT_EQ(generation->constraint()->finished().code(), Code::kUnavailable);
}

TEST(ConstraintMaker, ManyAtOnce) {
  ConstraintMaker maker(options());
  std::vector<std::future<Status>> heard;
  std::vector<std::shared_ptr<Generation>> generations;
  for (int i = 0; i < 40; ++i) {
    generations.push_back(generation_of({.gbnf = fmt::format("root ::= \"{}\"", i % 7)}));
    heard.push_back(constrain(maker, generations.back()));
  }
  for (std::size_t i = 0; i < heard.size(); ++i) {
    ASSERT_TRUE(wait(std::move(heard[i])).ok());
    EXPECT_EQ(generations[i]->constraint()->mask()['0' / 32], 1U << ('0' + i % 7) % 32) << i;
  }
}

}  // namespace
}  // namespace strata::gpu_worker
