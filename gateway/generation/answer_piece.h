#pragma once
// The events of an answer, in order: what every dialect is printed from, as a stream or as a whole.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata::gateway {

// The log probability of one answer token, with its alternatives.
struct TokenScore {
  std::string bytes = {};  // may be half a character
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top = {};  // falling
};

struct AnswerPiece {
  enum class Kind {
    kReasoning,
    kContent,
    kCallBegin,      // text: the function's name
    kCallArguments,  // text: goes on with the JSON text of the arguments
    kCallEnd,        // the arguments are complete, unless `fault` says otherwise
  };
  // Why a call that was begun is none after all.
  enum class Fault {
    kCut,        // the answer ended inside it
    kMalformed,  // its arguments are no JSON; text: what the model wrote so far, for whoever can still show
                 // it
  };
  Kind kind = Kind::kContent;
  std::string text = {};
  std::vector<TokenScore> scores = {};  // of the tokens whose text begins in this piece
  uint32_t call = 0;                    // kCall...: number of the call in the answer
  std::optional<Fault> fault = {};      // kCallEnd
};

// Calls have one kind of block.
inline bool is_call(AnswerPiece::Kind kind) { return kind >= AnswerPiece::Kind::kCallBegin; }

}  // namespace strata::gateway
