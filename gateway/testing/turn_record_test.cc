// Each way in which a turn can end, told by an engine that is modelled here: a window feeds the pending token
// and some drafts, accepts a part of them and chooses the next pending token; what the record says was
// committed must be what this engine has fed, token by token.

#include "gateway/testing/turn_record.h"

#include <gmock/gmock.h>

#include <random>

#include "gateway/generation/test_tokenizer.h"

namespace strata::gateway {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr int32_t kEndToken = 99;

class Engine {
 public:
  Engine(std::vector<int32_t> prompt, std::vector<int32_t> script, TurnRecord& record)
      : prompt_(std::move(prompt)), script_(std::move(script)), record_(record) {
    record_.begin_call(0, {});
  }

  void read_prompt(std::size_t tokens) {
    fed_.assign(prompt_.begin(), prompt_.begin() + static_cast<std::ptrdiff_t>(tokens));
  }
  void read_prompt() {
    read_prompt(prompt_.size());
    choose();
  }
  // Feeds the pending token and accepts up to `drafts` of the following ones.
  void window(std::size_t drafts = 0) {
    for (std::size_t i = 0; i <= drafts && !over_; ++i) {
      fed_.push_back(pending_);
      choose();
    }
  }
  // The engine's own end: everything that was fed is kept.
  void keep_all() { EXPECT_TRUE(record_.keeps(static_cast<uint32_t>(fed_.size())).ok()); }
  // It could go back to this position within its last window.
  void keep(uint32_t position) {
    fed_.resize(position);
    keep_all();
  }
  const std::vector<int32_t>& fed() const { return fed_; }
  bool over() const { return over_; }

 private:
  void choose() {
    pending_ = script_.at(next_);
    if (pending_ == kEndToken) {
      EXPECT_TRUE(record_.chose_end(pending_).ok());
      over_ = true;
    } else {
      EXPECT_TRUE(record_.chose(static_cast<uint32_t>(next_), pending_).ok());
    }
    ++next_;
    over_ |= next_ == script_.size();
  }

  std::vector<int32_t> prompt_, script_, fed_;
  TurnRecord& record_;
  std::size_t next_ = 0;
  int32_t pending_ = 0;
  bool over_ = false;
};

const std::vector<int32_t> kPrompt = {1, 2, 3};

class TurnRecordTest : public testing::Test {
 protected:
  void expect_committed(std::vector<int32_t> tokens, uint32_t generated_from) {
    const auto state = record_.committed();
    ASSERT_TRUE(state);
    EXPECT_EQ(state->position, tokens.size());
    EXPECT_THAT(state->tokens, ElementsAreArray(tokens));
    if (generated_from < tokens.size()) {
      EXPECT_THAT(state->generated, ElementsAre(TokenRange{.begin = generated_from, .end = state->position}));
    } else {
      EXPECT_TRUE(state->generated.empty());
    }
    EXPECT_FALSE(state->ahead_of_answer);
  }

  TurnRecord record_{kPrompt};
};

TEST_F(TurnRecordTest, AtTheLengthCapTheLastTokenIsChosenAndNotInTheState) {
  Engine engine(kPrompt, {10, 11, 12}, record_);
  engine.read_prompt();
  engine.window();
  engine.window();
  engine.keep_all();
  record_.end(TurnEnd::kLength);
  EXPECT_THAT(record_.answer(), ElementsAre(10, 11, 12));
  expect_committed({1, 2, 3, 10, 11}, 3);
}

// The window would have accepted more drafts than the cap allows.
TEST_F(TurnRecordTest, ALengthCapInsideAWindowCommitsWhatWasEmitted) {
  Engine engine(kPrompt, {10, 11, 12}, record_);
  engine.read_prompt();
  engine.window(/*drafts=*/5);
  engine.keep_all();
  record_.end(TurnEnd::kLength);
  expect_committed({1, 2, 3, 10, 11}, 3);
}

TEST_F(TurnRecordTest, AnAnswerOfOneTokenLeavesThePrompt) {
  Engine engine(kPrompt, {10}, record_);
  engine.read_prompt();
  engine.keep_all();
  record_.end(TurnEnd::kLength);
  expect_committed({1, 2, 3}, 3);
}

TEST_F(TurnRecordTest, AnEndTokenIsNoPartOfTheAnswer) {
  Engine engine(kPrompt, {10, 11, kEndToken}, record_);
  engine.read_prompt();
  engine.window();
  engine.window();
  engine.keep_all();
  record_.end(TurnEnd::kEndToken);
  EXPECT_THAT(record_.answer(), ElementsAre(10, 11));
  expect_committed({1, 2, 3, 10, 11}, 3);
}

TEST_F(TurnRecordTest, AnEndTokenInsideAWindowEndsTheStateThereToo) {
  Engine engine(kPrompt, {10, 11, kEndToken, 12, 13}, record_);
  engine.read_prompt();
  engine.window(/*drafts=*/4);
  EXPECT_TRUE(engine.over());
  engine.keep_all();
  record_.end(TurnEnd::kEndToken);
  expect_committed({1, 2, 3, 10, 11}, 3);
}

// Templates write the end token behind a finished answer, so a state with it saves one more token.
TEST_F(TurnRecordTest, AnEngineMayFeedTheEndToken) {
  Engine engine(kPrompt, {10, kEndToken, 0}, record_);
  engine.read_prompt();
  engine.window();
  EXPECT_TRUE(record_.keeps(5).ok());
  record_.end(TurnEnd::kEndToken);
  expect_committed({1, 2, 3, 10, kEndToken}, 3);
  EXPECT_EQ(record_.wanted_position(), 5u);
}

TEST_F(TurnRecordTest, AnAnswerOfNothingButItsEnd) {
  Engine engine(kPrompt, {kEndToken}, record_);
  engine.read_prompt();
  engine.keep_all();
  record_.end(TurnEnd::kEndToken);
  EXPECT_TRUE(record_.answer().empty());
  expect_committed({1, 2, 3}, 3);
}

// The stop string is in tokens 12 and 13; the engine is a window further when it hears of it.
TEST_F(TurnRecordTest, BehindAStopStringTheStateInFrontOfItIsWanted) {
  Engine engine(kPrompt, {10, 11, 12, 13, 14, 15, 16}, record_);
  engine.read_prompt();
  for (int i = 0; i < 3; ++i) engine.window();
  record_.end(TurnEnd::kStopString, /*shown_tokens=*/2);
  EXPECT_EQ(record_.wanted_position(), 5u);
  engine.window(/*drafts=*/1);
  EXPECT_EQ(record_.wanted_position(), 5u) << "late tokens change nothing about what was shown";
  engine.keep(record_.wanted_position());
  expect_committed({1, 2, 3, 10, 11}, 3);
}

TEST_F(TurnRecordTest, AnEngineThatCannotGoBackBehindAStopStringIsAheadOfTheAnswer) {
  Engine engine(kPrompt, {10, 11, 12, 13, 14}, record_);
  engine.read_prompt();
  engine.window(/*drafts=*/2);
  record_.end(TurnEnd::kStopString, /*shown_tokens=*/1);
  engine.window();
  engine.keep_all();
  const auto state = record_.committed();
  ASSERT_TRUE(state);
  EXPECT_THAT(state->tokens, ElementsAreArray(engine.fed()));
  EXPECT_TRUE(state->ahead_of_answer);
}

TEST_F(TurnRecordTest, AnAnswerCutOffByTheGatewayKeepsWhatWasShown) {
  Engine engine(kPrompt, {7, 7, 7, 7, 7}, record_);
  engine.read_prompt();
  engine.window();
  engine.window();
  record_.end(TurnEnd::kCutOff);
  engine.keep_all();
  expect_committed({1, 2, 3, 7, 7}, 3);
}

TEST_F(TurnRecordTest, AfterADisconnectInTheAnswerTheTokensOfTheLastWindowCount) {
  Engine engine(kPrompt, {10, 11, 12, 13}, record_);
  engine.read_prompt();
  engine.window();
  record_.end(TurnEnd::kDisconnect);
  engine.window();
  engine.keep_all();
  expect_committed({1, 2, 3, 10, 11}, 3);
  EXPECT_THAT(record_.answer(), ElementsAre(10, 11, 12));
}

// The same prompt sent again begins where the first one was left (rule K8).
TEST_F(TurnRecordTest, AfterADisconnectInThePromptWhatWasReadStays) {
  Engine engine(kPrompt, {10}, record_);
  engine.read_prompt(2);
  record_.end(TurnEnd::kDisconnect);
  EXPECT_FALSE(record_.committed()) << "nothing was acknowledged yet";
  engine.keep_all();
  expect_committed({1, 2}, 2);
}

TEST_F(TurnRecordTest, AnErrorLeavesNothing) {
  Engine engine(kPrompt, {10, 11}, record_);
  engine.read_prompt();
  engine.window();
  engine.keep_all();
  record_.end(TurnEnd::kError);
  EXPECT_FALSE(record_.committed());
}

TEST_F(TurnRecordTest, NothingIsCommittedWhileTheTurnGoesOn) {
  Engine engine(kPrompt, {10, 11}, record_);
  engine.read_prompt();
  engine.keep_all();
  EXPECT_FALSE(record_.committed());
  record_.end(TurnEnd::kLength);
  EXPECT_TRUE(record_.committed());
}

TEST_F(TurnRecordTest, AnEngineThatWasLostTookItsStateAlong) {
  Engine first(kPrompt, {10, 11, 12}, record_);
  first.read_prompt();
  first.window();
  first.keep_all();
  record_.begin_call(0, {});
  // The next one feeds prompt and known tokens again and goes on behind them.
  EXPECT_THAT(record_.answer(), ElementsAre(10, 11));
  EXPECT_TRUE(record_.chose(2, 12).ok());
  record_.end(TurnEnd::kLength);
  EXPECT_FALSE(record_.committed());
  EXPECT_TRUE(record_.keeps(5).ok());
  expect_committed({1, 2, 3, 10, 11}, 3);
}

// What an earlier turn generated stays generated as far as the state reaches that was continued, and is a
// prompt where it was read again.
TEST_F(TurnRecordTest, KnowsWhatEarlierTurnsGenerated) {
  TurnRecord record({1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<TokenRange> earlier = {{.begin = 1, .end = 3}, {.begin = 4, .end = 7}};
  const auto generated_at = [&](uint32_t position) {
    EXPECT_TRUE(record.keeps(position).ok());
    const auto state = record.committed();
    return state ? state->generated : std::vector<TokenRange>();
  };
  record.begin_call(6, earlier);
  EXPECT_TRUE(record.chose(0, 10).ok());
  record.end(TurnEnd::kLength);
  EXPECT_THAT(generated_at(9), ElementsAre(TokenRange{.begin = 1, .end = 3}, TokenRange{.begin = 4, .end = 6},
                                           TokenRange{.begin = 8, .end = 9}));
  EXPECT_THAT(generated_at(5),
              ElementsAre(TokenRange{.begin = 1, .end = 3}, TokenRange{.begin = 4, .end = 5}));
  EXPECT_THAT(generated_at(1), ElementsAre());
  record.begin_call(0, earlier);
  EXPECT_THAT(generated_at(9), ElementsAre(TokenRange{.begin = 8, .end = 9}));
  // An answer that is continued.
  record.begin_call(8, std::vector<TokenRange>{{.begin = 5, .end = 8}});
  EXPECT_THAT(generated_at(9), ElementsAre(TokenRange{.begin = 5, .end = 9}));
}

TEST_F(TurnRecordTest, AStateWithTokensThatNobodyNamedIsNone) {
  EXPECT_TRUE(record_.chose(0, 10).ok());
  EXPECT_TRUE(record_.keeps(4).ok());
  EXPECT_EQ(record_.keeps(5).code(), Code::kOutOfRange);
  record_.end(TurnEnd::kLength);
  EXPECT_FALSE(record_.committed()) << "not what it kept before, either";
  EXPECT_TRUE(record_.keeps(0).ok());
  EXPECT_FALSE(record_.committed());
}

TEST_F(TurnRecordTest, RefusesTokensOutOfTurn) {
  EXPECT_EQ(record_.chose(1, 10).code(), Code::kOutOfRange);
  EXPECT_TRUE(record_.chose(0, 10).ok());
  EXPECT_EQ(record_.chose(0, 10).code(), Code::kOutOfRange);
  EXPECT_TRUE(record_.chose_end(kEndToken).ok());
  EXPECT_EQ(record_.chose(1, 11).code(), Code::kOutOfRange);
  EXPECT_EQ(record_.chose_end(kEndToken).code(), Code::kFailedPrecondition);
  EXPECT_THAT(record_.answer(), ElementsAre(10));
}

TEST_F(TurnRecordTest, EndsOnce) {
  EXPECT_EQ(record_.ended(), std::nullopt);
  record_.end(TurnEnd::kStopString, 0);
  record_.end(TurnEnd::kError);
  EXPECT_EQ(record_.ended(), TurnEnd::kStopString);
}

TEST(TurnRecord, WhatIsCommittedIsWhatWasFedInEveryWayATurnCanEnd) {
  std::mt19937 random(3);
  const auto draw = [&](std::size_t below) { return random() % below; };
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> prompt(1 + draw(5)), script(1 + draw(12));
    for (auto* tokens : {&prompt, &script}) {
      for (int32_t& token : *tokens) token = static_cast<int32_t>(draw(4));
    }
    const bool by_itself = draw(2) == 0;
    if (by_itself) script.back() = kEndToken;
    TurnRecord record(prompt);
    Engine engine(prompt, script, record);
    TurnEnd how = by_itself ? TurnEnd::kEndToken : TurnEnd::kLength;
    uint32_t shown = UINT32_MAX;
    engine.read_prompt();
    while (!engine.over()) {
      if (draw(6) == 0) {
        how = static_cast<TurnEnd>(2 + draw(4));
        if (how == TurnEnd::kStopString) shown = static_cast<uint32_t>(draw(record.answer().size() + 1));
        record.end(how, shown);
        if (draw(2) == 0) engine.window(draw(3));
        break;
      }
      engine.window(draw(3));
    }
    record.end(how, shown);
    const bool goes_back = draw(2) == 0 && record.wanted_position() <= engine.fed().size();
    goes_back ? engine.keep(record.wanted_position()) : engine.keep_all();
    const auto state = record.committed();
    ASSERT_EQ(state.has_value(), how != TurnEnd::kError) << round;
    if (!state) continue;
    ASSERT_THAT(state->tokens, ElementsAreArray(engine.fed())) << round;
    EXPECT_FALSE(goes_back && state->ahead_of_answer) << round;
  }
}

TEST(TokensInFrontOfCut, AreThoseWhoseTextLiesWhollyBeforeIt) {
  const auto& tokenizer = test_tokenizer();
  const std::string text = "One two three. STOP and more";
  const std::vector<int32_t> answer = tokenizer.encode_untrusted(text);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t left = tokens_in_front_of_cut(tokenizer, answer, cut);
    const std::string before = tokenizer.decode(std::span(answer).first(left));
    EXPECT_LE(before.size(), text.size() - cut) << cut;
    if (left < answer.size()) {
      EXPECT_GT(before.size() + tokenizer.token_bytes(answer[left]).size(), text.size() - cut) << cut;
    }
  }
  EXPECT_EQ(tokens_in_front_of_cut(tokenizer, answer, 1000), 0u);
  EXPECT_EQ(tokens_in_front_of_cut(tokenizer, {}, 3), 0u);
}

TEST(TokensInFrontOfCut, SpecialTokensHaveNoText) {
  const auto& tokenizer = test_tokenizer();
  const int32_t special = tokenizer.find_token("<|im_start|>");
  ASSERT_GE(special, 0);
  std::vector<int32_t> answer = tokenizer.encode_untrusted("ab");
  const auto text_tokens = static_cast<uint32_t>(answer.size());
  answer.push_back(special);
  EXPECT_EQ(tokens_in_front_of_cut(tokenizer, answer, 0), text_tokens + 1);
  EXPECT_LT(tokens_in_front_of_cut(tokenizer, answer, 1), text_tokens);
}

}  // namespace
}  // namespace strata::gateway
