// The parts together, as chats use them: prompts made by the demo model's template, an engine that keeps a
// state wherever it is asked to and at the end of each answer, and what the next request reuses of it.

#include <gmock/gmock.h>

#include <boost/json/parse.hpp>

#include "gateway/chat_template/chat_template.h"
#include "gateway/conversations/checkpoint_positions.h"
#include "gateway/conversations/prefix_index.h"
#include "gateway/conversations/prompt_landmarks.h"
#include "gateway/generation/test_tokenizer.h"
#include "gateway/testing/turn_record.h"

namespace strata::gateway {
namespace {

struct Read {
  uint32_t prompt = 0, reused = 0;
  WhyNotMore why = {};
  uint32_t read() const { return prompt - reused; }
};

class ChatScenariosTest : public testing::Test {
 protected:
  ChatScenariosTest() {
    auto file = gguf::GgufFile::open(STRATA_SOURCE_DIR "/models/strata-demo.gguf");
    EXPECT_TRUE(file) << file.error().message();
    auto parsed = chat_template::ChatTemplate::parse(*file->get_string("tokenizer.chat_template"));
    EXPECT_TRUE(parsed) << parsed.error().message();
    template_ = std::move(*parsed);
    EXPECT_TRUE(index_.replace(Holder::kEngine, 1, {}).ok());
    say("system", "You are the assistant of a bookshop. Answer briefly, and never guess a price.");
  }

  void say(std::string_view role, std::string_view content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }
  tokenizer::MarkedText render(const boost::json::array& messages) const {
    chat_template::RenderInput input;
    input.messages = messages;
    auto text = template_->render(input);
    EXPECT_TRUE(text) << text.error().message();
    return std::move(*text);
  }
  void keep(std::span<const int32_t> tokens) {
    const auto position = static_cast<uint32_t>(tokens.size());
    const Status added = index_.add(1, {.info = {.id = {.high = 0, .low = ++last_id_},
                                                 .source = Source::kCheckpoint,
                                                 .owner = owner_,
                                                 .identity = {},
                                                 .position = position},
                                        .tokens = tokens});
    EXPECT_TRUE(added.ok()) << added.message();
  }

  // Reads the prompt of the messages so far and keeps its checkpoints.
  Read read() {
    const tokenizer::MarkedText text = render(messages_);
    prompt_ = test_tokenizer().encode(text);
    const PrefixMatch match = index_.find(prompt_, owner_, {});
    const auto size = static_cast<uint32_t>(prompt_.size());
    const auto landmarks =
        prompt_landmarks(test_tokenizer(), messages_, text, prompt_,
                         [this](const boost::json::array& other) { return render(other); });
    for (const auto& place : checkpoint_positions(landmarks, size, match.reused_tokens(), {})) {
      keep(std::span(prompt_).first(place.position));
    }
    return {.prompt = size, .reused = match.reused_tokens(), .why = match.why};
  }
  // Answers it so that the turn ends in this way. The state that is left is kept; what the client gets is the
  // next message of its history.
  void answer(const std::string& text, TurnEnd how = TurnEnd::kEndToken, std::size_t cut_bytes = 0) {
    TurnRecord record(prompt_);
    record.begin_call(0, {});
    const std::vector<int32_t> tokens = test_tokenizer().encode_untrusted(text);
    for (uint32_t i = 0; i < tokens.size(); ++i) EXPECT_TRUE(record.chose(i, tokens[i]).ok());
    if (how == TurnEnd::kEndToken) {
      EXPECT_TRUE(record.chose_end(test_tokenizer().end_of_generation()[0]).ok());
      EXPECT_TRUE(record.keeps(record.wanted_position() - 1).ok());
    } else {
      record.end(how, tokens_in_front_of_cut(test_tokenizer(), tokens, cut_bytes));
      // The last token was chosen and not fed.
      const auto fed = static_cast<uint32_t>(prompt_.size() + tokens.size() - 1);
      EXPECT_TRUE(record.keeps(std::min(record.wanted_position(), fed)).ok());
    }
    record.end(how);
    const auto state = record.committed();
    ASSERT_TRUE(state);
    keep(state->tokens);
    committed_ = state->position;
    say("assistant", text.substr(0, text.size() - cut_bytes));
  }
  uint32_t tokens_of(const std::string& text) const {
    return static_cast<uint32_t>(test_tokenizer().encode_trusted(text).size());
  }

  std::optional<chat_template::ChatTemplate> template_;
  PrefixIndex index_;
  NamespaceId owner_ = key_namespace("alice");
  boost::json::array messages_;
  std::vector<int32_t> prompt_;
  uint32_t committed_ = 0;
  uint64_t last_id_ = 0;
};

TEST_F(ChatScenariosTest, TheNextTurnReadsTheTemplatesTailAndTheNewMessage) {
  say("user", "Do you have anything about tides?");
  EXPECT_EQ(read().reused, 0u);
  answer("Yes, two books about tides and one about the moon.");
  say("user", "Which is the shorter one?");
  const Read next = read();
  EXPECT_EQ(next.reused, committed_);
  EXPECT_EQ(next.read(), tokens_of("<|im_end|>\n<|im_start|>user\nWhich is the shorter one?<|im_end|>\n"
                                   "<|im_start|>assistant\n"));
  EXPECT_EQ(next.why.cause, MissCause::kNew);
}

TEST_F(ChatScenariosTest, AnAnswerAtItsLengthCapIsReusedButForItsLastToken) {
  say("user", "List the shelves.");
  (void)read();
  answer("Travel, history, cooking, the sea, and", TurnEnd::kLength);
  say("user", "Go on.");
  EXPECT_EQ(read().reused, committed_);
  EXPECT_EQ(read().read(), tokens_of("<|im_start|>assistant\n")) << "the same prompt once more";
}

TEST_F(ChatScenariosTest, BehindAStopStringTheAnswerInFrontOfItIsReused) {
  say("user", "List the shelves.");
  (void)read();
  const uint32_t prompt = static_cast<uint32_t>(prompt_.size());
  answer("Travel, history. END of list", TurnEnd::kStopString, std::string(" END of list").size());
  say("user", "Thanks.");
  const Read next = read();
  EXPECT_EQ(next.reused, committed_);
  EXPECT_GT(next.reused, prompt);
}

TEST_F(ChatScenariosTest, EditingTheLastMessageReadsOnlyIt) {
  say("user", "Do you have anything about tides?");
  (void)read();
  answer("Yes, two books.");
  say("user", "Which is the shorter one?");
  (void)read();
  answer("The blue one.");
  messages_.pop_back();
  messages_.back().as_object()["content"] = "Which is cheaper, and is it in stock?";
  const Read edited = read();
  // And the end of the answer before it: the place between the two is not worth a state of its own.
  EXPECT_EQ(edited.read(),
            tokens_of("<|im_end|>\n<|im_start|>user\nWhich is cheaper, and is it in stock?<|im_end|>\n"
                      "<|im_start|>assistant\n"));
  EXPECT_EQ(edited.why.cause, MissCause::kDiverged);
}

TEST_F(ChatScenariosTest, AskingForAnotherAnswerReadsOnlyWhatOpensIt) {
  say("user", "Do you have anything about tides?");
  const Read first = read();
  answer("Yes, two books.");
  messages_.pop_back();
  const Read again = read();
  EXPECT_EQ(again.prompt, first.prompt);
  EXPECT_EQ(again.read(), tokens_of("<|im_start|>assistant\n"));
  EXPECT_EQ(again.why.cause, MissCause::kNoCheckpoint);
}

TEST_F(ChatScenariosTest, ANewChatWithTheSameSystemPromptReadsWhatIsNew) {
  say("user", "Do you have anything about tides?");
  (void)read();
  answer("Yes, two books.");
  messages_.erase(messages_.begin() + 1, messages_.end());
  say("user", "When do you open?");
  EXPECT_EQ(read().read(),
            tokens_of("<|im_start|>user\nWhen do you open?<|im_end|>\n<|im_start|>assistant\n"));
  owner_ = key_namespace("bob");
  EXPECT_EQ(read().reused, 0u) << "another key sees nothing of it";
}

TEST_F(ChatScenariosTest, AlternatingChatsKeepTheirStates) {
  const boost::json::array system = messages_;
  std::array<boost::json::array, 4> chats;
  for (std::size_t turn = 0; turn < 3; ++turn) {
    for (std::size_t chat = 0; chat < chats.size(); ++chat) {
      messages_ = turn == 0 ? system : chats[chat];
      say("user", "Question " + std::to_string(turn) + " of customer " + std::to_string(chat) + ", please?");
      const Read one = read();
      const std::string question = messages_.back().at("content").as_string().c_str();
      EXPECT_TRUE(turn == 0 || one.read() <= tokens_of(question) + 12) << one.read();
      answer("Answer " + std::to_string(turn) + " for customer " + std::to_string(chat) + ".");
      chats[chat] = messages_;
    }
  }
}

TEST_F(ChatScenariosTest, AnAgentReadsOnlyTheResultsOfItsTools) {
  say("user", "Find the price of the blue book.");
  (void)read();
  answer("Looking it up.");
  for (int step = 0; step < 5; ++step) {
    const std::string result = "shelf " + std::to_string(step) + " holds nothing blue";
    say("tool", result);
    const Read one = read();
    EXPECT_EQ(one.reused, committed_) << step;
    EXPECT_EQ(one.read(), tokens_of("<|im_end|>\n<|im_start|>user\n<tool_response>\n" + result +
                                    "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"));
    answer("Looking at the next one.");
  }
}

TEST_F(ChatScenariosTest, ACompactedHistoryKeepsItsRoot) {
  say("user", "Do you have anything about tides?");
  (void)read();
  answer("Yes, two books.");
  messages_.erase(messages_.begin() + 1, messages_.end());
  say("user", "Summary: the customer asked about tides and was told of two books. Which is shorter?");
  const Read compacted = read();
  EXPECT_EQ(compacted.why.cause, MissCause::kDiverged);
  EXPECT_GT(compacted.reused, 16u);
  EXPECT_LT(compacted.why.at_token - compacted.reused, 6u);
}

}  // namespace
}  // namespace strata::gateway
