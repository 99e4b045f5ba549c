#include "gateway/generation/answer_format.h"

#include <iterator>

namespace strata::gateway {

void Choice::add(AnswerPiece piece) {
  std::move(piece.scores.begin(), piece.scores.end(), std::back_inserter(scores));
  switch (piece.kind) {
    case AnswerPiece::Kind::kCallBegin:
      blocks.push_back({.kind = piece.kind, .name = std::move(piece.text)});
      return;
    case AnswerPiece::Kind::kCallArguments:
      blocks.back().text += piece.text;
      return;
    case AnswerPiece::Kind::kCallEnd:
      if (!piece.fault) return;
      blocks.pop_back();
      if (piece.text.empty()) return;
      piece.kind = AnswerPiece::Kind::kContent;
      break;
    case AnswerPiece::Kind::kReasoning:
    case AnswerPiece::Kind::kContent:
      break;
  }
  if (piece.text.empty()) return;  // scores of tokens without text
  if (blocks.empty() || blocks.back().kind != piece.kind) blocks.push_back({.kind = piece.kind});
  blocks.back().text += piece.text;
}

std::string Choice::text(AnswerPiece::Kind kind) const {
  std::string out;
  for (const AnswerBlock& block : blocks) {
    if (block.kind == kind) out += block.text;
  }
  return out;
}

boost::json::object timings_json(const Usage& usage) {
  return timings_json(usage.timings, {.cached = usage.cached_tokens,
                                      .prompt = usage.prompt_tokens - usage.cached_tokens,
                                      .predicted = usage.completion_tokens});
}

}  // namespace strata::gateway
