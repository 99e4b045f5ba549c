// Calls in an answer, token by token: text, thinking and calls told apart, nothing lost at any cut.

#include <gtest/gtest.h>

#include "gateway/generation/answer.h"
#include "gateway/generation/answer_format.h"
#include "gateway/generation/test_tokenizer.h"

namespace strata::gateway {
namespace {

using Kind = AnswerPiece::Kind;

const std::string kParis =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
const std::string kTime = "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>";

struct Reading {
  Choice choice;                    // as a whole answer has it
  std::vector<AnswerPiece> pieces;  // as a stream has them
  uint32_t calls = 0;
  bool malformed = false;
  std::optional<AnswerEnd> ended;

  std::string streamed(Kind kind, uint32_t call = 0) const {
    std::string out;
    for (const AnswerPiece& piece : pieces) {
      if (piece.kind == kind && (!is_call(kind) || piece.call == call)) out += piece.text;
    }
    return out;
  }
};

Reading read(const std::vector<int32_t>& ids, AnswerOptions options, AnswerEnd end = AnswerEnd::kStopToken) {
  options.split_thinking = true;
  options.calls.parse = true;
  Answer answer(test_tokenizer(), options);
  Reading out;
  for (uint32_t i = 0; i < ids.size() && !answer.ended(); ++i) {
    answer.push({.id = ids[i], .index = i, .logprob = -1}, out.pieces);
  }
  out.ended = answer.ended();
  answer.finish(out.ended.value_or(end), out.pieces);
  for (const AnswerPiece& piece : out.pieces) out.choice.add(piece);
  out.calls = answer.calls();
  out.malformed = answer.malformed_call();
  return out;
}
Reading read(std::string_view text, AnswerOptions options = {}, AnswerEnd end = AnswerEnd::kStopToken) {
  return read(test_tokenizer().encode_trusted(text), std::move(options), end);
}

// "kind name text" of each block.
std::vector<std::string> blocks(const Reading& reading) {
  std::vector<std::string> out;
  for (const AnswerBlock& block : reading.choice.blocks) {
    const char* kind = block.kind == Kind::kReasoning ? "think "
                       : block.kind == Kind::kContent ? "text "
                                                      : "call ";
    out.push_back(kind + block.name + (block.name.empty() ? "" : " ") + block.text);
  }
  return out;
}
using Blocks = std::vector<std::string>;

TEST(AnswerCallsTest, Case13ACallAloneLeavesNoText) {
  const Reading one = read(kParis);
  EXPECT_EQ(blocks(one), Blocks{R"(call get_weather {"city": "Paris"})"});
  EXPECT_EQ(one.calls, 1u);
  EXPECT_EQ(one.streamed(Kind::kContent), "");
  EXPECT_EQ(blocks(read("\n\n" + kParis + "\n")), Blocks{R"(call get_weather {"city": "Paris"})"});
}

TEST(AnswerCallsTest, Case14SeveralCallsAreNumberedAndTextAndThinkingStandApart) {
  const Reading all =
      read("<think>\nTwo calls.\n</think>\n\nI look.\n" + kParis + "\n" + kTime + "\nWait.\n");
  EXPECT_EQ(blocks(all), (Blocks{"think Two calls.", "text I look.", R"(call get_weather {"city": "Paris"})",
                                 "call get_time {}", "text Wait.\n"}));
  EXPECT_EQ(all.calls, 2u);
  EXPECT_EQ(all.streamed(Kind::kCallBegin, 0), "get_weather");
  EXPECT_EQ(all.streamed(Kind::kCallArguments, 0), R"({"city": "Paris"})");
  EXPECT_EQ(all.streamed(Kind::kCallBegin, 1), "get_time");
}

// What a cut answer shows is a beginning of what the whole one shows; of a call that was cut the whole
// response has nothing, and no piece of a mark ever shows.
TEST(AnswerCallsTest, RuleB24AtEveryCutNothingIsWrongAndNoMarkIsShown) {
  const std::string text = "I look.\n" + kParis + "\n" + kTime;
  const std::vector<int32_t> ids = test_tokenizer().encode_trusted(text);
  const Reading all = read(ids, {});
  for (std::size_t cut = 0; cut < ids.size(); ++cut) {
    const Reading part =
        read({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut)}, {}, AnswerEnd::kLength);
    EXPECT_TRUE(std::string("I look.\n").starts_with(part.streamed(Kind::kContent))) << cut;
    EXPECT_EQ(part.streamed(Kind::kContent).find('<'), std::string::npos) << cut;
    for (uint32_t call : {0u, 1u}) {
      EXPECT_TRUE(
          all.streamed(Kind::kCallArguments, call).starts_with(part.streamed(Kind::kCallArguments, call)));
    }
    uint32_t whole_calls = 0;
    for (const AnswerBlock& block : part.choice.blocks) whole_calls += block.kind == Kind::kCallBegin;
    EXPECT_EQ(whole_calls, part.calls) << "an incomplete call in the whole response, cut " << cut;
    EXPECT_FALSE(part.malformed) << cut;
  }
}

TEST(AnswerCallsTest, MalformedCallsStayTextMarksIncluded) {
  for (const std::string inner :
       {"\nnot JSON\n", "\n{\"name\": 7}\n", "", "\n{\"name\": \"f\", \"arguments\": [1]}\n"}) {
    const std::string text = "I look.\n<tool_call>" + inner + "</tool_call>";
    const Reading bad = read(text);
    EXPECT_EQ(blocks(bad), Blocks{"text " + text});
    EXPECT_EQ(bad.streamed(Kind::kContent), text);
    EXPECT_TRUE(bad.malformed);
    EXPECT_EQ(bad.calls, 0u);
  }
  // A good one behind it is the first call.
  const Reading mixed = read("<tool_call>\nno\n</tool_call>\n" + kTime);
  EXPECT_EQ(blocks(mixed), (Blocks{"text <tool_call>\nno\n</tool_call>", "call get_time {}"}));
  EXPECT_EQ(mixed.streamed(Kind::kCallBegin, 0), "get_time");
}

TEST(AnswerCallsTest, ACallThatGoesWrongInItsArgumentsIsTextInTheWholeAndEndsInTheStream) {
  const std::string text =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"say \"hi\"\"}}\n</tool_call>";
  const Reading bad = read(text);
  EXPECT_EQ(blocks(bad), Blocks{"text " + text});
  EXPECT_EQ(bad.streamed(Kind::kCallArguments), "{\"a\": \"say \"");
  EXPECT_EQ(bad.streamed(Kind::kContent), "hi\"\"}}\n</tool_call>");
  EXPECT_TRUE(bad.malformed);
  // The model ends its turn in the middle.
  const Reading open = read("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1");
  EXPECT_EQ(blocks(open), Blocks{"text <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1"});
  EXPECT_TRUE(open.malformed);
  // Everything but the closing mark is a call.
  EXPECT_EQ(blocks(read("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}")), Blocks{"call f {}"});
}

TEST(AnswerCallsTest, MarksInOrdinaryTokensAreText) {
  const Reading spelled = read(test_tokenizer().encode_untrusted(kParis), {});
  EXPECT_EQ(blocks(spelled), Blocks{"text " + kParis});
  EXPECT_EQ(spelled.calls, 0u);
  EXPECT_FALSE(spelled.malformed);
  // And inside a call they are part of its text.
  std::vector<int32_t> ids =
      test_tokenizer().encode_trusted("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"");
  for (int32_t id : test_tokenizer().encode_untrusted("</tool_call>")) ids.push_back(id);
  for (int32_t id : test_tokenizer().encode_trusted("\"}}\n</tool_call>")) ids.push_back(id);
  EXPECT_EQ(blocks(read(ids, {})), Blocks{R"(call f {"a": "</tool_call>"})"});
}

TEST(AnswerCallsTest, Case15WithoutParallelCallsTheFirstEndsTheAnswer) {
  const Reading one = read(kParis + "\n" + kTime, {.calls = {.one = true}});
  EXPECT_EQ(blocks(one), Blocks{R"(call get_weather {"city": "Paris"})"});
  EXPECT_EQ(one.ended, AnswerEnd::kOneCall);
}

TEST(AnswerCallsTest, Case15ACallThatThePromptBegan) {
  AnswerOptions named{.calls = {.one = true, .begun = "\n{\"name\": \"get_time\", \"arguments\":"}};
  EXPECT_EQ(blocks(read(" {\"city\": \"Rome\"}}\n</tool_call>", named)),
            Blocks{R"(call get_time {"city": "Rome"})"});
  EXPECT_EQ(blocks(read("{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", {.calls = {.begun = "\n"}})),
            Blocks{"call f {}"});
  EXPECT_EQ(blocks(read("I will not.", {.calls = {.begun = "\n"}})), Blocks{"text <tool_call>\nI will not."});
}

TEST(AnswerCallsTest, StopStringsLookAtTheTextAndNotIntoCalls) {
  const Reading run_on = read("I look.\n" + kParis + "\nStop now", {.stop = {"Paris", "now"}});
  EXPECT_EQ(blocks(run_on), (Blocks{"text I look.", R"(call get_weather {"city": "Paris"})", "text Stop "}));
  EXPECT_EQ(run_on.ended, AnswerEnd::kStopString);
  // What was held back for a stop string comes out before the call.
  EXPECT_EQ(blocks(read("I look" + kTime, {.stop = {"look at"}})),
            (Blocks{"text I look", "call get_time {}"}));
}

TEST(AnswerCallsTest, LogProbabilitiesAreThoseOfTheText) {
  const Reading scored = read("I look." + kParis, {.scores = true});
  std::string bytes;
  for (const TokenScore& score : scored.choice.scores) bytes += score.bytes;
  EXPECT_EQ(bytes, "I look.");
}

TEST(AnswerCallsTest, LineBreaksThatNoCallFollowsAreText) {
  EXPECT_EQ(blocks(read("One.\n\nTwo.\n")), Blocks{"text One.\n\nTwo.\n"});
  EXPECT_EQ(blocks(read("One.\n", {}, AnswerEnd::kLength)), Blocks{"text One.\n"});
}

}  // namespace
}  // namespace strata::gateway
