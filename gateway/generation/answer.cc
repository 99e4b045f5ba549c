#include "gateway/generation/answer.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"

namespace strata::gateway {

namespace {

void append_text(std::vector<AnswerPiece>& out, AnswerPiece::Kind kind, std::string text) {
  if (!text.empty()) out.push_back({.kind = kind, .text = std::move(text)});
}

void drop_leading_newlines(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
}

}  // namespace

Answer::Answer(const tokenizer::Tokenizer& tokenizer, AnswerOptions options)
    : tokenizer_(&tokenizer),
      options_(std::move(options)),
      detokenizer_(tokenizer),
      stops_(options_.stop),
      in_thinking_(options_.split_thinking && options_.starts_in_thinking),
      skip_newlines_(in_thinking_) {
  if (options_.split_thinking) {
    think_open_ = tokenizer.find_token(kThinkOpen);
    think_close_ = tokenizer.find_token(kThinkClose);
  }
  if (options_.calls.parse) {
    call_open_ = tokenizer.find_token(kCallOpen);
    call_close_ = tokenizer.find_token(kCallClose);
  }
  if (options_.calls.begun) {
    std::vector<AnswerPiece> none;
    open_call(none);
    call_->push(*options_.calls.begun, none);
    CHECK(none.empty(), "the prompt must leave the call's arguments to the model");
  }
}

void Answer::push(const GeneratedToken& token, std::vector<AnswerPiece>& out) {
  if (ended_ || guard_against_loop(token.id)) return;
  if (call_) {
    push_call(token.id, out);
  } else if (in_thinking_) {
    ++reasoning_tokens_;
    if (token.id == think_close_) {
      detokenizer_.finish();
      held_newlines_.clear();
      in_thinking_ = false;
      skip_newlines_ = true;
    } else {
      push_reasoning(token.id, out);
    }
  } else if (token.id == think_open_ && think_open_ >= 0 && !has_content_) {
    ++reasoning_tokens_;
    detokenizer_.finish();
    in_thinking_ = true;
    skip_newlines_ = true;
  } else if (token.id == call_open_ && call_open_ >= 0) {
    open_call(out);
  } else if (token.id != think_open_ && token.id != think_close_) {
    // A stray mark in the middle of the answer is neither thinking nor text.
    push_content(token, out);
  }
}

void Answer::finish(AnswerEnd end, std::vector<AnswerPiece>& out) {
  detokenizer_.finish();
  if (call_) close_call(end, out);
  if (in_thinking_) held_newlines_.clear();
  show_content(stops_.flush(), /*last=*/true, out);
}

// Line breaks in front of a call belong to its mark, as they do in the template.
void Answer::open_call(std::vector<AnswerPiece>& out) {
  detokenizer_.finish();
  show_content(stops_.flush(), /*last=*/false, out);
  shown_bytes_ += held_newlines_.size();
  newlines_before_call_ = std::exchange(held_newlines_, {});
  std::erase_if(waiting_, [this](const WaitingScore& waiting) { return waiting.begin < shown_bytes_; });
  call_.emplace(calls_begun_++, options_.calls.strings);
}

void Answer::push_call(int32_t id, std::vector<AnswerPiece>& out) {
  if (id == call_close_) {
    detokenizer_.finish();
    close_call({}, out);
  } else if (tokenizer_->token_type(id) != tokenizer::TokenType::kControl) {
    call_->push(detokenizer_.push(id), out);
  }
}

// end: of the answer, if it ended inside the call. What is no call stays text, marks included, so that nobody
// loses it; of a call that was cut off nothing is left but what a stream has shown (rule B24).
void Answer::close_call(std::optional<AnswerEnd> end, std::vector<AnswerPiece>& out) {
  const bool complete = call_->close(out), shown = call_->shown();
  if (complete) {
    ++calls_;
    skip_newlines_ = true;
    if (options_.calls.one) ended_ = AnswerEnd::kOneCall;
    show_raw(std::string(call_->untold()), out);
  } else if (end && *end != AnswerEnd::kStopToken) {
    if (shown) out.push_back(call_end(AnswerPiece::Fault::kCut));
  } else {
    malformed_call_ = true;
    std::string told = newlines_before_call_;
    told += kCallOpen;
    told += call_->told();
    if (shown) {
      out.push_back(call_end(AnswerPiece::Fault::kMalformed));
      out.back().text = std::exchange(told, {});
    }
    told += call_->untold();
    if (!end) told += kCallClose;
    show_raw(std::move(told), out);
  }
  if (!shown && !complete) --calls_begun_;
  call_.reset();
}

AnswerPiece Answer::call_end(AnswerPiece::Fault fault) const {
  return {.kind = AnswerPiece::Kind::kCallEnd, .call = calls_begun_ - 1, .fault = fault};
}

// Text beside the stop strings and the scores.
void Answer::show_raw(std::string text, std::vector<AnswerPiece>& out) {
  has_content_ |= !text.empty();
  append_text(out, AnswerPiece::Kind::kContent, std::move(text));
}

void Answer::push_reasoning(int32_t id, std::vector<AnswerPiece>& out) {
  if (tokenizer_->token_type(id) == tokenizer::TokenType::kControl) return;
  std::string text = detokenizer_.push(id);
  if (skip_newlines_) drop_leading_newlines(text);
  if (text.empty()) return;
  skip_newlines_ = false;
  std::size_t end = text.find_last_not_of('\n') + 1;  // npos + 1 is 0: nothing but newlines
  std::string newlines = text.substr(end);
  if (end == 0) {
    held_newlines_ += newlines;
    return;
  }
  text.resize(end);
  append_text(out, AnswerPiece::Kind::kReasoning, held_newlines_ + text);
  held_newlines_ = std::move(newlines);
}

void Answer::push_content(const GeneratedToken& token, std::vector<AnswerPiece>& out) {
  std::string text;
  if (tokenizer_->token_type(token.id) != tokenizer::TokenType::kControl) text = detokenizer_.push(token.id);
  if (skip_newlines_) {
    drop_leading_newlines(text);
    if (text.empty() && !detokenizer_.pending())
      return;  // newlines after </think>: no text, so no score either
    skip_newlines_ = text.empty();
  }
  if (options_.scores) {
    WaitingScore waiting{.begin = decoded_bytes_};
    waiting.score.bytes = tokenizer_->token_bytes(token.id);
    // A model's own log probabilities are at most 0; rounding must not show as more.
    waiting.score.logprob = std::min(token.logprob, 0.0f);
    for (const auto& [id, logprob] : token.top) {
      waiting.score.top.emplace_back(tokenizer_->token_bytes(id), std::min(logprob, 0.0f));
    }
    waiting_.push_back(std::move(waiting));
  }
  decoded_bytes_ += text.size();
  std::string shown = stops_.push(text);
  show_content(std::move(shown), /*last=*/false, out);
  if (stops_.matched()) ended_ = AnswerEnd::kStopString;
}

void Answer::show_content(std::string text, bool last, std::vector<AnswerPiece>& out) {
  if (call_open_ >= 0) {
    text.insert(0, std::exchange(held_newlines_, {}));
    const std::size_t end = last ? text.size() : text.find_last_not_of('\n') + 1;
    held_newlines_ = text.substr(end);
    text.resize(end);
  }
  shown_bytes_ += text.size();
  AnswerPiece piece{.text = std::move(text)};
  // After a stop string the tokens that made it are not part of the answer; at any other end even tokens
  // without text count.
  const bool all = last && !stops_.matched();
  auto shown_end = std::ranges::find_if(
      waiting_, [&](const WaitingScore& waiting) { return !all && waiting.begin >= shown_bytes_; });
  if (!piece.text.empty() || last) {
    for (auto it = waiting_.begin(); it != shown_end; ++it) piece.scores.push_back(std::move(it->score));
    waiting_.erase(waiting_.begin(), shown_end);
  }
  if (piece.text.empty() && piece.scores.empty()) return;
  has_content_ |= !piece.text.empty();
  out.push_back(std::move(piece));
}

bool Answer::guard_against_loop(int32_t id) {
  run_length_ = id == run_token_ ? run_length_ + 1 : 1;
  run_token_ = id;
  if (run_length_ < kTokenRunMax) return false;
  ended_ = AnswerEnd::kLoopGuard;
  return true;
}

bool ends_in_thinking(const tokenizer::Tokenizer& tokenizer, const std::vector<int32_t>& prompt) {
  const int32_t open = tokenizer.find_token(kThinkOpen);
  for (auto it = prompt.rbegin(); open >= 0 && it != prompt.rend(); ++it) {
    if (*it == open) return true;
    if (tokenizer.token_bytes(*it).find_first_not_of(" \n\t\r") != std::string_view::npos) return false;
  }
  return false;
}

}  // namespace strata::gateway
