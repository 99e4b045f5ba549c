#pragma once
// From the tokens of one answer to what a client sees: the one path for stream and non-stream (rule A3).
// Thinking and answer are told apart by token id, never by text (rule A6); control tokens never become text;
// a character that spans tokens comes out whole; stop strings end the answer; a run of one and the same token
// is cut off (rule A2). Where tools were offered, what stands between the marks of a call is a call, again by
// token: marks that are spelled out in other tokens are text.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/engine/engine_client.h"
#include "gateway/generation/answer_piece.h"
#include "gateway/generation/stop_matcher.h"
#include "gateway/generation/tool_call_reader.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

enum class AnswerEnd {
  kStopToken,
  kStopString,
  kLength,
  kLoopGuard,
  kDeadline,  // the request's time is over
  kOneCall,   // the only call that was allowed is complete
};

// How calls in an answer are treated.
struct CallOptions {
  bool parse = false;                     // tools were offered; else the marks are text like any other
  bool one = false;                       // the answer ends with its first call
  std::optional<std::string> begun = {};  // the prompt ends inside a call; its text behind the opening mark
  StringParameters strings = {};
};

struct AnswerOptions {
  bool split_thinking = false;      // legacy completions show everything as text
  bool starts_in_thinking = false;  // the prompt ended inside <think>
  bool scores = false;
  std::vector<std::string> stop = {};
  CallOptions calls = {};
};

inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";

// A model whose state is broken repeats one token for ever.
inline constexpr uint32_t kTokenRunMax = 256;

class Answer {
 public:
  // The tokenizer must outlive the answer.
  Answer(const tokenizer::Tokenizer& tokenizer, AnswerOptions options);

  // Takes the next token and appends what can be shown now.
  void push(const GeneratedToken& token, std::vector<AnswerPiece>& out);
  // Appends what was held back; the answer ended like this. Incomplete characters are dropped.
  void finish(AnswerEnd end, std::vector<AnswerPiece>& out);

  // Set as soon as the answer has to end before the engine ends it.
  std::optional<AnswerEnd> ended() const { return ended_; }
  bool in_thinking() const { return in_thinking_; }
  bool has_content() const { return has_content_; }
  uint32_t calls() const { return calls_; }                          // complete ones
  bool malformed_call() const { return malformed_call_; }            // what stood between marks was none
  const std::string& stop_string() const { return stops_.match(); }  // with kStopString
  uint32_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void push_reasoning(int32_t id, std::vector<AnswerPiece>& out);
  void push_content(const GeneratedToken& token, std::vector<AnswerPiece>& out);
  void push_call(int32_t id, std::vector<AnswerPiece>& out);
  void open_call(std::vector<AnswerPiece>& out);
  void close_call(std::optional<AnswerEnd> end, std::vector<AnswerPiece>& out);
  AnswerPiece call_end(AnswerPiece::Fault fault) const;
  void show_content(std::string text, bool last, std::vector<AnswerPiece>& out);
  void show_raw(std::string text, std::vector<AnswerPiece>& out);
  bool guard_against_loop(int32_t id);

  const tokenizer::Tokenizer* tokenizer_;
  AnswerOptions options_;
  tokenizer::Detokenizer detokenizer_;
  StopMatcher stops_;
  int32_t think_open_ = -1, think_close_ = -1, call_open_ = -1, call_close_ = -1;

  bool in_thinking_ = false;
  bool skip_newlines_ = false;  // those around the thinking marks belong to the marks
  std::string held_newlines_;   // at the end of the thinking, or of a text that a call may follow, so far
  std::string newlines_before_call_;
  bool has_content_ = false;
  std::optional<ToolCallReader> call_;  // being read
  uint32_t calls_begun_ = 0, calls_ = 0;
  bool malformed_call_ = false;
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
