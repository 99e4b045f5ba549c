#pragma once
// For tests: which tokens one turn leaves behind, written down from what was emitted alone: the books that
// say what the state of a sequence stands for when the turn has ended, in whatever way (rules C5, C9; design:
// "Committed state equals emitted tokens"). What an engine keeps is compared with it.
//
// A state is only as good as the knowledge of its tokens. So the record goes by token ids alone, never by
// text; what the state holds is what the engine says it holds, never what was asked for or shown; and a state
// that holds a token which nobody has named is no state. What makes a difference of a token or two:
//
//   - a token that was chosen is fed in the next window, so after an answer that ends at its length cap the
//     state usually holds all tokens but the last one;
//   - the token that ended an answer is not part of it, but may be in the state;
//   - behind a stop string, a disconnect or an answer cut off by the gateway the engine may be some tokens
//     ahead: it says which, and they count.
//
// Pure; one per choice of a request. A fault is a bug of the engine: the call should be failed.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gateway/conversations/conversation_types.h"
#include "services/base/status.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

enum class TurnEnd : uint8_t {
  kEndToken,    // the model ended its answer
  kLength,      // max_tokens, or the context is full
  kStopString,  // cut off in front of a stop string
  kCutOff,      // ended by the gateway: a loop, the server stops
  kDisconnect,  // the client left, while its prompt was read or in the answer
  kError,       // the engine failed: its state is worth nothing
};

// What the next turn can be continued from.
struct CommittedState {
  uint32_t position = 0;
  std::span<const int32_t> tokens = {};  // so many; of the record, until it changes
  // Of the tokens, those that were generated here, not read as a prompt, in this turn or in one that the
  // state it was continued from came from: a state is defined by both (numbers contract).
  std::vector<TokenRange> generated = {};
  // It goes beyond what the client was shown: the next turn will not begin with these tokens.
  bool ahead_of_answer = false;
};

class TurnRecord {
 public:
  explicit TurnRecord(std::vector<int32_t> prompt)
      : prompt_tokens_(static_cast<uint32_t>(prompt.size())), tokens_(std::move(prompt)) {}

  // The engine is called, for the first time or again because it was lost: what it kept before is gone, what
  // was chosen stays. reused_tokens: behind which it begins, in a state with these generated tokens.
  void begin_call(uint32_t reused_tokens, std::span<const TokenRange> generated);

  // The engine chose token `index` of the answer. Also after the turn has ended here: the engine hears of it
  // a window later. kOutOfRange: not the next one.
  Status chose(uint32_t index, int32_t token);
  // The engine ended the answer with this token. kFailedPrecondition: it had done so before.
  Status chose_end(int32_t token);
  // The engine acknowledges: it keeps a state after exactly the first `position` tokens, prompt included; 0:
  // none. The last word counts. kOutOfRange: more tokens than were ever named; then there is no state.
  Status keeps(uint32_t position);

  // How it ended, the first time somebody says so. shown_tokens: of the answer, those that the client got
  // whole; more than there are counts as all.
  void end(TurnEnd how, uint32_t shown_tokens = UINT32_MAX);

  std::optional<TurnEnd> ended() const { return end_; }
  uint32_t prompt_tokens() const { return prompt_tokens_; }
  std::span<const int32_t> answer() const {
    return std::span(tokens_).subspan(prompt_tokens_, answer_tokens_);
  }
  // The position at which the state should be kept, or the nearest before it: the next turn will begin with
  // the tokens in front of it.
  uint32_t wanted_position() const;
  // Nothing: the turn goes on, it failed, or the engine keeps nothing.
  std::optional<CommittedState> committed() const;

 private:
  uint32_t prompt_tokens_ = 0;
  uint32_t answer_tokens_ = 0;
  uint32_t shown_tokens_ = UINT32_MAX;
  uint32_t kept_tokens_ = 0;
  std::vector<int32_t> tokens_;  // prompt, answer, and the token that ended it
  bool end_token_ = false;
  std::optional<TurnEnd> end_;
  std::vector<TokenRange> generated_;  // of the prompt
};

// How many tokens of an answer lie wholly in front of its last `cut_bytes` bytes of text (the stop string and
// what came with it). Special tokens have no text.
uint32_t tokens_in_front_of_cut(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> answer,
                                std::size_t cut_bytes);

}  // namespace strata::gateway
