#include "gateway/generation/answer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "gateway/api/json_text.h"
#include "gateway/generation/answer_format.h"
#include "gateway/generation/test_tokenizer.h"

namespace strata::gateway {
namespace {

constexpr AnswerPiece::Kind kContent = AnswerPiece::Kind::kContent;
constexpr AnswerPiece::Kind kReasoning = AnswerPiece::Kind::kReasoning;

class AnswerTest : public ::testing::Test {
 protected:
  // Text as the model would write it: special spellings are the special tokens.
  static std::vector<int32_t> tokens(std::string_view text) { return test_tokenizer().encode_trusted(text); }

  void run(AnswerOptions options, const std::vector<int32_t>& ids) {
    answer_.emplace(test_tokenizer(), std::move(options));
    pieces_.clear();
    for (int32_t id : ids) {
      if (answer_->ended()) break;
      GeneratedToken token{.id = id, .index = index_++, .logprob = -0.5f, .top = {{id, -0.5f}, {7, -2.0f}}};
      answer_->push(token, pieces_);
    }
    answer_->finish(answer_->ended().value_or(AnswerEnd::kStopToken), pieces_);
  }
  std::string joined(AnswerPiece::Kind kind) const {
    std::string text;
    for (const AnswerPiece& piece : pieces_) {
      if (piece.kind == kind) text += piece.text;
    }
    return text;
  }

  std::optional<Answer> answer_;
  std::vector<AnswerPiece> pieces_;
  uint32_t index_ = 0;
};

TEST_F(AnswerTest, ShowsTheTextPieceByPiece) {
  const std::string text = "A violin is a small stringed instrument.";
  run({.split_thinking = true}, tokens(text));
  EXPECT_EQ(joined(kContent), text);
  EXPECT_GE(pieces_.size(), 5u);
  EXPECT_TRUE(answer_->has_content());
  EXPECT_FALSE(answer_->ended());
}

TEST_F(AnswerTest, EveryPieceIsWholeCharactersAndAnIncompleteOneIsDroppedAtTheEnd) {
  const std::string text = "👨‍👩‍👧‍👦 日本語 é हिन्दी";
  std::vector<int32_t> ids = tokens(text);
  run({}, ids);
  EXPECT_EQ(joined(kContent), text);
  for (std::size_t cap = 0; cap < ids.size(); ++cap) {
    run({}, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cap)});
    EXPECT_TRUE(text.starts_with(joined(kContent))) << "cap " << cap;
    EXPECT_EQ(joined(kContent).find("\xef\xbf\xbd"), std::string::npos) << "cap " << cap;
  }
}

TEST_F(AnswerTest, TellsThinkingFromTheAnswerByTokenAndDropsTheNewlinesAroundTheMarks) {
  run({.split_thinking = true}, tokens("<think>\nTwo and two.\nIs four.\n</think>\n\nFour."));
  EXPECT_EQ(joined(kReasoning), "Two and two.\nIs four.");
  EXPECT_EQ(joined(kContent), "Four.");
  EXPECT_GT(answer_->reasoning_tokens(), 4u);
  EXPECT_FALSE(answer_->in_thinking());
}

TEST_F(AnswerTest, APromptThatOpenedTheThinkingLeavesTheAnswerInsideIt) {
  run({.split_thinking = true, .starts_in_thinking = true}, tokens("Carry the one.\n</think>\n\n65"));
  EXPECT_EQ(joined(kReasoning), "Carry the one.");
  EXPECT_EQ(joined(kContent), "65");

  run({.split_thinking = true, .starts_in_thinking = true}, tokens("Carry the one."));
  EXPECT_TRUE(answer_->in_thinking());
  EXPECT_FALSE(answer_->has_content());
}

TEST_F(AnswerTest, MarksWrittenAsOrdinaryTextStayText) {
  const std::string text = "The tag </think> closes <think>.";
  run({.split_thinking = true}, test_tokenizer().encode_untrusted(text));
  EXPECT_EQ(joined(kContent), text);
  EXPECT_EQ(joined(kReasoning), "");
}

TEST_F(AnswerTest, ControlTokensAreNeverTextAndMarksOfCallsAreWhereNoToolsWereOffered) {
  run({.split_thinking = true}, tokens("a<|im_start|>b"));
  EXPECT_EQ(joined(kContent), "ab");
  run({.split_thinking = true}, tokens("<tool_call>\n{}"));
  EXPECT_EQ(joined(kContent), "<tool_call>\n{}");
}

TEST_F(AnswerTest, StopStringsEndTheAnswerButNotTheThinking) {
  run({.split_thinking = true, .stop = {"STOP"}},
      tokens("<think>\nSTOP is a word.\n</think>\n\nHere I STOP now."));
  EXPECT_EQ(joined(kReasoning), "STOP is a word.");
  EXPECT_EQ(joined(kContent), "Here I ");
  EXPECT_EQ(answer_->ended(), AnswerEnd::kStopString);
}

TEST_F(AnswerTest, WhatWasHeldBackComesOutAtTheEnd) {
  run({.stop = {"instrument of torture"}}, tokens("a small instrument"));
  EXPECT_EQ(joined(kContent), "a small instrument");
  EXPECT_FALSE(answer_->ended());
}

TEST_F(AnswerTest, ScoresComeWithTheTextOfTheirTokensAndTheirBytesAreTheText) {
  for (const std::vector<std::string>& stop : {std::vector<std::string>{}, {"zzz", "small inst"}}) {
    const std::string text = "a small island, 日本";
    std::vector<int32_t> ids = tokens(text);
    run({.scores = true, .stop = stop}, ids);
    std::string bytes;
    std::size_t entries = 0;
    for (const AnswerPiece& piece : pieces_) {
      EXPECT_FALSE(piece.scores.empty()) << "text without scores: " << piece.text;
      for (const TokenScore& score : piece.scores) bytes += score.bytes;
      entries += piece.scores.size();
    }
    EXPECT_EQ(bytes, text);
    EXPECT_EQ(entries, ids.size());
  }
}

TEST_F(AnswerTest, TheTokensOfAStopStringHaveNoScores) {
  run({.scores = true, .stop = {" island"}}, tokens("a small island"));
  std::string bytes;
  for (const AnswerPiece& piece : pieces_) {
    for (const TokenScore& score : piece.scores) bytes += score.bytes;
  }
  EXPECT_EQ(bytes, "a small");
}

TEST_F(AnswerTest, CutsOffAModelThatRepeatsOneToken) {
  const int32_t mark = tokens("!").front();
  run({}, std::vector<int32_t>(kTokenRunMax + 50, mark));
  EXPECT_EQ(answer_->ended(), AnswerEnd::kLoopGuard);
  EXPECT_EQ(joined(kContent).size(), kTokenRunMax - 1);
}

TEST_F(AnswerTest, KnowsWhetherAPromptEndsInsideTheThinking) {
  EXPECT_TRUE(ends_in_thinking(test_tokenizer(), tokens("<|im_start|>assistant\n<think>\n")));
  EXPECT_FALSE(ends_in_thinking(test_tokenizer(), tokens("<|im_start|>assistant\n<think>\n\n</think>\n\n")));
  EXPECT_FALSE(ends_in_thinking(test_tokenizer(), tokens("<|im_start|>assistant\n")));
  EXPECT_FALSE(ends_in_thinking(test_tokenizer(), test_tokenizer().encode_untrusted("<think>")));
}

boost::json::value event_json(const std::string& event) {
  return boost::json::parse(event.substr(6, event.find("\n\n") - 6));
}

const AnswerIdentity kIdentity{
    .id = "chatcmpl-1", .request_id = "1", .created = 1700000000, .model = "demo", .fingerprint = "fp_0"};

TEST(ChatFormatTest, ChunksHaveTheShapeThatClientsKnow) {
  auto format = make_chat_format(kIdentity, {.include_usage = true});
  EXPECT_EQ(
      format->begin_choice(0),
      "data: "
      R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"demo","system_fingerprint":"fp_0",)"
      R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]})"
      "\n\n");
  auto reasoning = event_json(format->piece(0, {.kind = kReasoning, .text = "hm"}));
  EXPECT_EQ(reasoning.at("choices").at(0).at("delta").at("reasoning_content"), "hm");
  auto finish = event_json(format->finish_choice(0, {.detail = "ended_in_thinking"}));
  EXPECT_TRUE(finish.at("choices").at(0).at("delta").as_object().empty());
  EXPECT_EQ(finish.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(finish.at("choices").at(0).at("finish_detail"), "ended_in_thinking");
  auto usage =
      event_json(format->end_stream({.prompt_tokens = 5, .completion_tokens = 3, .cached_tokens = 2}));
  EXPECT_TRUE(usage.at("choices").as_array().empty());
  EXPECT_EQ(usage.at("usage").at("total_tokens"), 8);
  EXPECT_EQ(usage.at("usage").at("prompt_tokens_details").at("cached_tokens"), 2);
}

TEST(ChatFormatTest, TheWholeAnswerHasReasoningOnlyWhereThereWasSome) {
  auto format = make_chat_format(kIdentity, {});
  Choice quiet{.blocks = {{.text = "Hi."}}};
  auto whole = boost::json::parse(format->whole({quiet}, {.prompt_tokens = 1, .completion_tokens = 1}));
  EXPECT_EQ(whole.at("object"), "chat.completion");
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("content"), "Hi.");
  EXPECT_FALSE(whole.at("choices").at(0).at("message").as_object().contains("reasoning_content"));
  EXPECT_FALSE(whole.at("choices").at(0).as_object().contains("finish_detail"));
  EXPECT_TRUE(whole.at("choices").at(0).at("logprobs").is_null());
}

TEST(ChatFormatTest, Case14FirstDeltaOfACallHasIdAndNameTheOthersOnlyArguments) {
  auto format = make_chat_format(kIdentity, {});
  const AnswerPiece begin{.kind = AnswerPiece::Kind::kCallBegin, .text = "f", .call = 1};
  const AnswerPiece more{.kind = AnswerPiece::Kind::kCallArguments, .text = "{\"a\"", .call = 1};
  EXPECT_EQ(
      to_json(event_json(format->piece(0, begin)).at("choices").at(0).at("delta")),
      R"({"tool_calls":[{"index":1,"id":"call_1_1","type":"function","function":{"name":"f","arguments":""}}]})");
  EXPECT_EQ(to_json(event_json(format->piece(0, more)).at("choices").at(0).at("delta")),
            R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"a\""}}]})");
  EXPECT_EQ(format->piece(0, {.kind = AnswerPiece::Kind::kCallEnd, .call = 1}), "");
}

TEST(ChatFormatTest, Case13AWholeAnswerOfCallsAloneHasNullContent) {
  auto format = make_chat_format(kIdentity, {});
  Choice choice{.blocks = {{.kind = AnswerPiece::Kind::kCallBegin, .text = R"({"a": 1})", .name = "f"}},
                .finish = {.reason = Finish::Reason::kToolCalls}};
  auto entry = event_json("data: " + format->whole({choice}, {}) + "\n\n").at("choices").at(0);
  EXPECT_EQ(entry.at("finish_reason"), "tool_calls");
  EXPECT_EQ(to_json(entry.at("message")),
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"call_1_0","type":"function",)"
            R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]})");
  choice.blocks.insert(choice.blocks.begin(), {.text = "I look."});
  EXPECT_EQ(boost::json::parse(format->whole({choice}, {})).at("choices").at(0).at("message").at("content"),
            "I look.");
}

TEST(ChatFormatTest, LogProbabilitiesCarryBytesAndPrintAsTheyAre) {
  auto format = make_chat_format(kIdentity, {.scores = true});
  AnswerPiece piece{.text = "é",
                    .scores = {{.bytes = "\xc3", .logprob = -0.1f, .top = {{"\xc3", -0.1f}}},
                               {.bytes = "\xa9", .logprob = 0}}};
  const std::string text = format->piece(0, piece);
  EXPECT_NE(text.find(R"("token":"�","logprob":-0.1,"bytes":[195])"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("bytes":[169],"top_logprobs":[]})"), std::string::npos) << text;
}

TEST(CompletionFormatTest, LegacyLogProbabilitiesCountOffsetsInCharactersOverAllChunks) {
  auto format = make_completion_format(kIdentity, {.scores = true});
  auto first = event_json(
      format->piece(0, {.text = "né", .scores = {{.bytes = "né", .logprob = -1, .top = {{"a", -2.0f}}}}}));
  auto second = event_json(format->piece(0, {.text = "e", .scores = {{.bytes = "e", .logprob = -1}}}));
  EXPECT_EQ(first.at("object"), "text_completion");
  EXPECT_EQ(first.at("choices").at(0).at("logprobs").at("text_offset").at(0), 0);
  EXPECT_EQ(first.at("choices").at(0).at("logprobs").at("top_logprobs").at(0).as_object().size(), 2u);
  EXPECT_EQ(second.at("choices").at(0).at("logprobs").at("text_offset").at(0), 2);
}

}  // namespace
}  // namespace strata::gateway
