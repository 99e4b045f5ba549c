#pragma once
// From the tokens of one answer to what a client sees: the one path for stream and non-stream (rule A3).
// Thinking and answer are told apart by token id, never by text (rule A6); control tokens never become text;
// a character that spans tokens comes out whole; stop strings end the answer; a run of one and the same token
// is cut off (rule A2).

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gateway/engine/engine_client.h"
#include "gateway/generation/stop_matcher.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

// The log probability of one answer token, with its alternatives.
struct TokenScore {
  std::string bytes = {};  // may be half a character
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top = {};  // falling
};

struct AnswerPiece {
  enum class Kind { kReasoning, kContent };
  Kind kind = Kind::kContent;
  std::string text = {};
  std::vector<TokenScore> scores = {};  // of the tokens whose text begins in this piece
};

enum class AnswerEnd { kStopToken, kStopString, kLength, kLoopGuard };

struct AnswerOptions {
  bool split_thinking = false;      // legacy completions show everything as text
  bool starts_in_thinking = false;  // the prompt ended inside <think>
  bool scores = false;
  std::vector<std::string> stop = {};
};

// A model whose state is broken repeats one token for ever.
inline constexpr uint32_t kTokenRunMax = 256;

class Answer {
 public:
  // The tokenizer must outlive the answer.
  Answer(const tokenizer::Tokenizer& tokenizer, AnswerOptions options);

  // Takes the next token and appends what can be shown now.
  void push(const GeneratedToken& token, std::vector<AnswerPiece>& out);
  // Appends what was held back. Incomplete characters are dropped.
  void finish(std::vector<AnswerPiece>& out);

  // Set as soon as the answer has to end before the engine ends it.
  std::optional<AnswerEnd> ended() const { return ended_; }
  bool in_thinking() const { return in_thinking_; }
  bool has_content() const { return has_content_; }
  uint32_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void push_reasoning(int32_t id, std::vector<AnswerPiece>& out);
  void push_content(const GeneratedToken& token, std::vector<AnswerPiece>& out);
  void show_content(std::string text, bool last, std::vector<AnswerPiece>& out);
  bool guard_against_loop(int32_t id);

  const tokenizer::Tokenizer* tokenizer_;
  AnswerOptions options_;
  tokenizer::Detokenizer detokenizer_;
  StopMatcher stops_;
  int32_t think_open_ = -1, think_close_ = -1;

  bool in_thinking_ = false;
  bool skip_newlines_ = false;  // those around the thinking marks belong to the marks
  std::string held_newlines_;   // at the end of the thinking so far
  bool has_content_ = false;
  uint32_t reasoning_tokens_ = 0;
  std::optional<AnswerEnd> ended_;

  // Scores wait until the text of their token is shown; `begin` counts bytes of the answer's text.
  struct WaitingScore {
    std::size_t begin = 0;
    TokenScore score = {};
  };
  std::vector<WaitingScore> waiting_;
  std::size_t decoded_bytes_ = 0, shown_bytes_ = 0;

  int32_t run_token_ = -1;
  uint32_t run_length_ = 0;
};

// Whether a prompt leaves the model inside its thinking: its last token but for white space is <think>.
bool ends_in_thinking(const tokenizer::Tokenizer& tokenizer, const std::vector<int32_t>& prompt);

}  // namespace strata::gateway
