#pragma once
// What one answer may say next: where it stands, in its thinking or in its grammar, and the mask of the
// tokens that may follow (docs/grammar.md). Made where the request is accepted, because reading known tokens
// may take a while; from then on the window loop's thread uses it. What cannot be done between two windows
// (a mask that has to be made, a text of many readings) another thread does with finish(), while ready() is
// false; meanwhile nobody else touches it, and its answer stays out of the windows.
//
// The thinking is free, but for two things: behind thinking_tokens_max tokens only thinking_end may come, and
// where a grammar follows the answer does not end in the thinking. Thinking that the model opens itself
// (thinking_begin) has the same limit, as often as it is opened; a grammar reads it like everything else.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu-worker/generation.h"
#include "services/base/status.h"
#include "services/grammar/matcher.h"

namespace strata::gpu_worker {

class AnswerConstraint {
 public:
  // grammar: of request.constraint.gbnf; null where there is none. vocab: of the model's logits. The end of
  // the prompt and the known tokens of the answer are read. kInvalidArgument: one of them does not fit (the
  // message names it).
  static Result<std::shared_ptr<AnswerConstraint>> create(const GenerationRequest& request,
                                                          std::shared_ptr<const grammar::Grammar> grammar,
                                                          uint32_t vocab);

  // For the token that comes next, (mask_words of the vocabulary), valid until the next accept(); empty: any
  // may come. With a grammar, never all zero.
  std::span<const uint32_t> mask() const {
    return masked_ ? std::span<const uint32_t>(mask_) : std::span<const uint32_t>();
  }
  // The token ends the answer although it may be none of the request's end tokens.
  bool ends_with(int32_t token) const;
  // Goes on behind a token of the answer, if that is quick; else it is not ready() until finish(). kInternal:
  // it does not fit, or nothing can follow; both mean that the text has more readings than the grammar
  // library follows.
  Status accept(int32_t token);
  // Any thread.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // The rest of accept(). Once, on any thread, where it is not ready.
  void finish();
  // Instead of finish().
  void give_up(Status why);
  // What finish() came to, as accept() says it.
  const Status& finished() const { return finished_; }

 private:
  enum class Stage { kThinking, kGrammar, kFree };

  AnswerConstraint(const GenerationRequest& request, std::shared_ptr<const grammar::Grammar> grammar,
                   uint32_t vocab);
  Status go_on();
  bool read(int32_t token);
  bool update_mask();
  bool thinks() const { return stage_ == Stage::kThinking || own_thinking_; }
  bool allow_only(int32_t token);

  const std::optional<int32_t> thinking_begin_, thinking_end_;
  const std::optional<uint32_t> thinking_tokens_max_;
  const std::vector<int32_t> end_tokens_;
  std::optional<grammar::Matcher> matcher_;
  Stage stage_;
  bool own_thinking_ = false;  // the model has opened it, and it is read by the grammar, if there is one
  uint32_t thought_ = 0;       // tokens of thinking
  uint32_t read_ = 0;          // tokens of the answer
  bool masked_ = false;
  std::vector<uint32_t> mask_;  // (mask_words)
  std::optional<int32_t> unread_;
  Status finished_;
  // Stored with release by finish(): whoever sees it true sees all that was done.
  std::atomic<bool> ready_{true};
};

}  // namespace strata::gpu_worker
