// Stepped token by token over a vocabulary of bytes: token b is the byte b, 256 ends the generation, and the
// logits are of 300 tokens.

#include "gpu-worker/answer_constraint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "services/grammar/test_support.h"
#include "services/model/sampling.h"

namespace strata::gpu_worker {
namespace {

constexpr uint32_t kVocab = 300;
constexpr int32_t kEnd = 256, kThinkingBegin = 289, kThinkingEnd = 290, kOtherEnd = 299;

struct Wish {
  std::string gbnf = {};
  std::vector<int32_t> prompt = {'p'};
  uint32_t prompt_tokens = 0;
  std::vector<int32_t> known = {};
  std::optional<int32_t> thinking_end = {};
  std::optional<uint32_t> thinking_tokens_max = {};
  std::optional<int32_t> thinking_begin = {};
  std::vector<int32_t> end_tokens = {kEnd};
};

Result<std::shared_ptr<AnswerConstraint>> make(const Wish& wish) {
  GenerationRequest request;
  request.prompt = wish.prompt;
  request.generated = wish.known;
  request.end_tokens = wish.end_tokens;
  request.constraint = {.gbnf = wish.gbnf,
                        .prompt_tokens = wish.prompt_tokens,
                        .thinking_end = wish.thinking_end,
                        .thinking_tokens_max = wish.thinking_tokens_max,
                        .thinking_begin = wish.thinking_begin};
  return AnswerConstraint::create(request, wish.gbnf.empty() ? nullptr : grammar::compiled(wish.gbnf),
                                  kVocab);
}

std::shared_ptr<AnswerConstraint> made(const Wish& wish) {
  auto result = make(wish);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return *result;
}

// Of what was not quick, too.
std::set<int32_t> allowed(AnswerConstraint& constraint) {
  if (!constraint.ready()) constraint.finish();
  EXPECT_TRUE(constraint.finished().ok()) << constraint.finished().message();
  std::set<int32_t> tokens;
  EXPECT_EQ(constraint.mask().size(), model::mask_words(kVocab));
  for (std::size_t t = 0; t < constraint.mask().size() * 32; ++t) {
    if ((constraint.mask()[t / 32] >> t % 32 & 1U) != 0) tokens.insert(static_cast<int32_t>(t));
  }
  return tokens;
}
std::set<int32_t> all_but(const std::set<int32_t>& tokens) {
  std::set<int32_t> all;
  for (int32_t t = 0; t < static_cast<int32_t>(kVocab); ++t) {
    if (!tokens.contains(t)) all.insert(t);
  }
  return all;
}
using Tokens = std::set<int32_t>;

TEST(AnswerConstraint, AllowsWhatTheGrammarAllows) {
  const auto constraint = made({.gbnf = R"(root ::= "a" [bc] "d"?)"});
  EXPECT_EQ(allowed(*constraint), Tokens{'a'});
  ASSERT_TRUE(constraint->accept('a').ok());
  EXPECT_EQ(allowed(*constraint), (Tokens{'b', 'c'}));
  EXPECT_FALSE(constraint->ends_with('b'));
  EXPECT_TRUE(constraint->ends_with(kEnd));
  ASSERT_TRUE(constraint->accept('b').ok());
  EXPECT_EQ(allowed(*constraint), (Tokens{'d', kEnd})) << "complete";
  ASSERT_TRUE(constraint->accept('d').ok());
  EXPECT_EQ(allowed(*constraint), Tokens{kEnd}) << "only the end is left";
}

TEST(AnswerConstraint, TheRequestsEndTokensMayComeWhereTheTextIsComplete) {
  const auto constraint = made({.gbnf = R"(root ::= "a" "b"?)", .end_tokens = {kOtherEnd, kEnd}});
  EXPECT_EQ(allowed(*constraint), Tokens{'a'});
  ASSERT_TRUE(constraint->accept('a').ok());
  EXPECT_EQ(allowed(*constraint), (Tokens{'b', kEnd, kOtherEnd}));
  ASSERT_TRUE(constraint->accept('b').ok());
  EXPECT_EQ(allowed(*constraint), (Tokens{kEnd, kOtherEnd}));
}

TEST(AnswerConstraint, TheEndOfThePromptMayBelongToTheText) {
  const Wish wish{.gbnf = R"(root ::= "<call>" [0-9]+)", .prompt = {'x', '<', 'c', 'a'}, .prompt_tokens = 3};
  const auto constraint = made(wish);
  EXPECT_EQ(allowed(*constraint), Tokens{'l'});
  Wish wrong = wish;
  wrong.prompt_tokens = 4;
  const auto refused = make(wrong);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("prompt_tokens[0]"), std::string::npos)
      << refused.error().message();
}

TEST(AnswerConstraint, GoesOnBehindKnownTokensAsIfItHadSeenThemCome) {
  const std::string gbnf = R"(root ::= "x" [0-9]{2,5} ("," | ";") "end")";
  const std::vector<int32_t> answer = {'x', '1', '2', '3', ';', 'e', 'n', 'd'};
  const auto whole = made({.gbnf = gbnf});
  for (std::size_t known = 0; known <= answer.size(); ++known) {
    const auto resumed =
        made({.gbnf = gbnf, .known = {answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(known)}});
    EXPECT_EQ(allowed(*resumed), allowed(*whole)) << known;
    if (known == answer.size()) break;
    ASSERT_TRUE(whole->accept(answer[known]).ok());
  }
  const auto refused = make({.gbnf = gbnf, .known = {'x', '1', ','}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("generated_tokens[2]"), std::string::npos);
}

TEST(AnswerConstraint, TheThinkingIsFreeAndTheGrammarBeginsBehindIt) {
  const auto constraint = made({.gbnf = R"(root ::= "ok")", .thinking_end = kThinkingEnd});
  const Tokens free = all_but({kEnd});
  EXPECT_EQ(allowed(*constraint), free) << "anything but the end, which would leave no answer";
  for (const int32_t token : {int32_t{'{'}, int32_t{'o'}, int32_t{'k'}, 7, 280}) {
    ASSERT_TRUE(constraint->accept(token).ok());
    EXPECT_EQ(allowed(*constraint), free);
    EXPECT_FALSE(constraint->ends_with(kEnd));
  }
  ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
  EXPECT_EQ(allowed(*constraint), Tokens{'o'});
  ASSERT_TRUE(constraint->accept('o').ok());
  ASSERT_TRUE(constraint->accept('k').ok());
  EXPECT_EQ(allowed(*constraint), Tokens{kEnd});
}

TEST(AnswerConstraint, BehindTheThinkingThePromptDoesNotBelongToTheText) {
  const auto constraint = made(
      {.gbnf = R"(root ::= "ok")", .prompt = {'n', 'o'}, .prompt_tokens = 2, .thinking_end = kThinkingEnd});
  ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
  EXPECT_EQ(allowed(*constraint), Tokens{'o'});
}

TEST(AnswerConstraint, EndsTheThinkingWhenItsBudgetIsSpent) {
  for (const bool with_grammar : {false, true}) {
    const Wish wish{
        .gbnf = with_grammar ? "root ::= \"a\"" : "", .thinking_end = kThinkingEnd, .thinking_tokens_max = 2};
    const auto constraint = made(wish);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(constraint->mask().empty(), !with_grammar);
      ASSERT_TRUE(constraint->accept('t').ok());
    }
    EXPECT_EQ(allowed(*constraint), Tokens{kThinkingEnd});
    ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
    if (with_grammar) {
      EXPECT_EQ(allowed(*constraint), Tokens{'a'});
    } else {
      EXPECT_TRUE(constraint->mask().empty());
      EXPECT_FALSE(constraint->ends_with(kEnd));
      ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
      EXPECT_TRUE(constraint->mask().empty()) << "it may be said again";
    }
  }
}

TEST(AnswerConstraint, AThinkingThatEndsByItselfHasNoBudgetAnyMore) {
  const auto constraint = made({.thinking_end = kThinkingEnd, .thinking_tokens_max = 3});
  ASSERT_TRUE(constraint->accept('t').ok());
  ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(constraint->mask().empty());
    ASSERT_TRUE(constraint->accept('t').ok());
  }
}

TEST(AnswerConstraint, ABudgetOfNothingAndOneThatKnownTokensHaveSpent) {
  EXPECT_EQ(allowed(*made({.thinking_end = kThinkingEnd, .thinking_tokens_max = 0})), Tokens{kThinkingEnd});
  EXPECT_EQ(allowed(*made({.known = {'t', 't'}, .thinking_end = kThinkingEnd, .thinking_tokens_max = 2})),
            Tokens{kThinkingEnd});
  EXPECT_TRUE(
      made({.known = {'t', kThinkingEnd, 't'}, .thinking_end = kThinkingEnd, .thinking_tokens_max = 2})
          ->mask()
          .empty());
  EXPECT_EQ(allowed(*made({.gbnf = "root ::= \"ab\"",
                           .known = {'t', kThinkingEnd, 'a'},
                           .thinking_end = kThinkingEnd,
                           .thinking_tokens_max = 2})),
            Tokens{'b'});
}

TEST(AnswerConstraint, ThinkingOfTheModelsOwnHasItsBudgetAsOftenAsItIsOpened) {
  const auto constraint =
      made({.thinking_end = kThinkingEnd, .thinking_tokens_max = 2, .thinking_begin = kThinkingBegin});
  const auto expect_free = [&] { EXPECT_TRUE(constraint->mask().empty()); };
  expect_free();
  ASSERT_TRUE(constraint->accept(kThinkingBegin).ok());
  for (int i = 0; i < 2; ++i) {
    expect_free();
    ASSERT_TRUE(constraint->accept('t').ok());
  }
  EXPECT_EQ(allowed(*constraint), Tokens{kThinkingEnd});
  ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
  for (int i = 0; i < 5; ++i) {
    expect_free();
    ASSERT_TRUE(constraint->accept('a').ok()) << "the answer is no thinking";
  }
  ASSERT_TRUE(constraint->accept(kThinkingBegin).ok());
  EXPECT_EQ(allowed(*constraint), Tokens{kThinkingEnd}) << "nothing is left of the budget";
  ASSERT_TRUE(constraint->accept(kThinkingEnd).ok());
  expect_free();

  // Known tokens count, and an answer without thinking has no limit.
  EXPECT_EQ(allowed(*made({.known = {kThinkingBegin, 't', 't'},
                           .thinking_end = kThinkingEnd,
                           .thinking_tokens_max = 2,
                           .thinking_begin = kThinkingBegin})),
            Tokens{kThinkingEnd});
  EXPECT_TRUE(made({.known = {'t', 't', 't'},
                    .thinking_end = kThinkingEnd,
                    .thinking_tokens_max = 0,
                    .thinking_begin = kThinkingBegin})
                  ->mask()
                  .empty());
}

TEST(AnswerConstraint, AGrammarReadsThinkingOfTheModelsOwnAndBoundsItWhereItKnowsIt) {
  const auto think = [](std::string gbnf, uint32_t budget) {
    return made(
        {.gbnf = std::move(gbnf), .thinking_end = 2, .thinking_tokens_max = budget, .thinking_begin = 1});
  };
  const auto known = think(R"(root ::= (<[1]> [^\x01-\x02]* <[2]>)? "ok")", 1);
  EXPECT_EQ(allowed(*known), (Tokens{1, 'o'}));
  ASSERT_TRUE(known->accept(1).ok());
  EXPECT_TRUE(allowed(*known).contains('t'));
  ASSERT_TRUE(known->accept(0xC3).ok());
  EXPECT_FALSE(allowed(*known).contains(2)) << "not inside a character";
  ASSERT_TRUE(known->accept(0xA4).ok());
  EXPECT_EQ(allowed(*known), Tokens{2});
  ASSERT_TRUE(known->accept(2).ok());
  EXPECT_EQ(allowed(*known), Tokens{'o'});

  const auto foreign = think(R"(root ::= <[1]> "ab")", 0);
  ASSERT_TRUE(foreign->accept(1).ok());
  EXPECT_EQ(allowed(*foreign), Tokens{'a'}) << "the mark means something else in this grammar";
}

// The masks of such grammars are made when they are needed, which is not between two windows.
TEST(AnswerConstraint, WhatTakesLongIsFinishedElsewhere) {
  const auto constraint = made({.gbnf = R"(root ::= "a" [bc] "d")"});
  EXPECT_TRUE(constraint->ready());
  ASSERT_TRUE(constraint->accept('a').ok());
  EXPECT_FALSE(constraint->ready());
  std::thread([&] { constraint->finish(); }).join();
  ASSERT_TRUE(constraint->ready());
  EXPECT_TRUE(constraint->finished().ok());
  EXPECT_EQ(allowed(*constraint), (Tokens{'b', 'c'}));

  // What another answer has made is there.
  const auto grammar = grammar::compiled(R"(root ::= "a" [bc] "d")");
  EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
  GenerationRequest request;
  request.prompt = {'p'};
  request.end_tokens = {kEnd};
  request.constraint = {.gbnf = "that one"};
  const auto quick = AnswerConstraint::create(request, grammar, kVocab);
  ASSERT_TRUE(quick.has_value());
  for (const int32_t token : {'a', 'c', 'd'}) {
    ASSERT_TRUE((*quick)->accept(token).ok());
    EXPECT_TRUE((*quick)->ready());
  }
  EXPECT_EQ(allowed(**quick), Tokens{kEnd});
}

TEST(AnswerConstraint, AFaultOrAnEndThatIsFoundLateIsToldLate) {
  // Nothing follows the first token, because the vocabulary has no "z".
  GenerationRequest request;
  request.prompt = {0};
  request.constraint = {.gbnf = "that one"};
  const auto grammar = grammar::compiled(R"(root ::= "a" "z")", grammar::vocabulary_of({"a", "b", "</s>"}));
  const auto stuck = AnswerConstraint::create(request, grammar, kVocab);
  ASSERT_TRUE(stuck.has_value());
  ASSERT_TRUE((*stuck)->accept(0).ok());
  ASSERT_FALSE((*stuck)->ready());
  (*stuck)->finish();
  EXPECT_EQ((*stuck)->finished().code(), Code::kInternal);
  EXPECT_NE((*stuck)->finished().message().find("behind token 0"), std::string::npos)
      << (*stuck)->finished().message();

  const auto given_up = made({.gbnf = R"(root ::= "a" [bc])"});
  ASSERT_TRUE(given_up->accept('a').ok());
  given_up->give_up(Status(Code::kUnavailable, "stopping"));
  EXPECT_TRUE(given_up->ready());
  EXPECT_EQ(given_up->finished().code(), Code::kUnavailable);
}

TEST(AnswerConstraint, ATokenThatWasNotAllowedEndsTheAnswer) {
  const auto constraint = made({.gbnf = R"(root ::= "ab")"});
  const Status refused = constraint->accept('b');
  EXPECT_EQ(refused.code(), Code::kInternal);
  EXPECT_NE(refused.message().find("token 0 of the answer"), std::string::npos) << refused.message();
}

// No token but the byte that is missing from this vocabulary could follow.
TEST(AnswerConstraint, AMaskOfNothingEndsTheAnswer) {
  const auto vocabulary = grammar::vocabulary_of({"a", "b", "</s>"});
  const auto grammar = grammar::compiled(R"(root ::= "a" "z")", vocabulary);
  GenerationRequest request;
  request.prompt = {0};
  request.end_tokens = {2};
  request.constraint.gbnf = "that of the grammar";
  auto constraint = AnswerConstraint::create(request, grammar, 3);
  ASSERT_TRUE(constraint.has_value());
  EXPECT_EQ(grammar->prepare(std::chrono::hours(1)), 0U);
  const Status stuck = (*constraint)->accept(0);
  EXPECT_EQ(stuck.code(), Code::kInternal);
  EXPECT_NE(stuck.message().find("behind token 0"), std::string::npos) << stuck.message();
  request.generated = {0};
  constraint = AnswerConstraint::create(request, grammar, 3);
  ASSERT_FALSE(constraint.has_value());
  EXPECT_EQ(constraint.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace strata::gpu_worker
