#include "gateway/testing/turn_record.h"

#include <algorithm>

namespace strata::gateway {

void TurnRecord::begin_call(uint32_t reused_tokens, std::span<const TokenRange> generated) {
  kept_tokens_ = 0;
  generated_ = clipped(generated, std::min(reused_tokens, prompt_tokens_));
}

Status TurnRecord::chose(uint32_t index, int32_t token) {
  if (index != answer_tokens_ || end_token_) {
    return fail(Code::kOutOfRange, "token {} of the answer after {}{}", index, answer_tokens_,
                end_token_ ? " and its end" : "");
  }
  tokens_.push_back(token);
  ++answer_tokens_;
  return {};
}

Status TurnRecord::chose_end(int32_t token) {
  if (end_token_) return fail(Code::kFailedPrecondition, "the answer ended twice");
  tokens_.push_back(token);
  end_token_ = true;
  return {};
}

Status TurnRecord::keeps(uint32_t position) {
  kept_tokens_ = position <= tokens_.size() ? position : 0;
  if (position == kept_tokens_) return {};
  return fail(Code::kOutOfRange, "the engine keeps a state of {} tokens, {} are known", position,
              tokens_.size());
}

void TurnRecord::end(TurnEnd how, uint32_t shown_tokens) {
  if (end_) return;
  end_ = how;
  shown_tokens_ = shown_tokens;
}

uint32_t TurnRecord::wanted_position() const {
  const auto all = static_cast<uint32_t>(tokens_.size());
  return shown_tokens_ >= answer_tokens_ ? all : prompt_tokens_ + shown_tokens_;
}

std::optional<CommittedState> TurnRecord::committed() const {
  if (!end_ || *end_ == TurnEnd::kError || kept_tokens_ == 0) return {};
  CommittedState state{.position = kept_tokens_,
                       .tokens = std::span(tokens_).first(kept_tokens_),
                       .generated = clipped(generated_, kept_tokens_),
                       .ahead_of_answer = kept_tokens_ > wanted_position()};
  if (kept_tokens_ <= prompt_tokens_) return state;
  // An answer that goes on with one of an earlier turn makes one range with it.
  if (!state.generated.empty() && state.generated.back().end == prompt_tokens_) {
    state.generated.back().end = kept_tokens_;
  } else {
    state.generated.push_back({.begin = prompt_tokens_, .end = kept_tokens_});
  }
  return state;
}

uint32_t tokens_in_front_of_cut(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> answer,
                                std::size_t cut_bytes) {
  std::size_t left = answer.size();
  for (std::size_t bytes = 0; left > 0 && bytes < cut_bytes; --left) {
    const int32_t token = answer[left - 1];
    if (!tokenizer.is_special(token)) bytes += tokenizer.token_bytes(token).size();
  }
  return static_cast<uint32_t>(left);
}

}  // namespace strata::gateway
