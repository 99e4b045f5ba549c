#include "gateway/generation/answer.h"

#include <algorithm>

namespace strata::gateway {

namespace {

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";

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
}

void Answer::push(const GeneratedToken& token, std::vector<AnswerPiece>& out) {
  if (ended_ || guard_against_loop(token.id)) return;
  if (in_thinking_) {
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
  } else if (token.id != think_open_ && token.id != think_close_) {
    // A stray mark in the middle of the answer is neither thinking nor text.
    push_content(token, out);
  }
}

void Answer::finish(std::vector<AnswerPiece>& out) {
  detokenizer_.finish();
  held_newlines_.clear();
  show_content(stops_.flush(), /*last=*/true, out);
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
