#pragma once
// The tokens of one answer as the engine chose them, over all its calls: they are sent again when it is lost.
// A fault is a bug of the engine: the call should be failed.

#include <cstdint>
#include <span>
#include <vector>

#include "services/base/status.h"

namespace strata::gateway {

class AnswerTokens {
 public:
  // Token `index` of the answer. Also after the turn has ended here: the engine hears of that a window later.
  // kOutOfRange: not the next one.
  Status chose(uint32_t index, int32_t token) {
    if (index != tokens_.size() || ended_)
      return fail(Code::kOutOfRange, "token {} of the answer after {}{}", index, tokens_.size(),
                  ended_ ? " and its end" : "");
    tokens_.push_back(token);
    return {};
  }
  // The engine ended the answer; the token that did is no part of it. kFailedPrecondition: it had done so
  // before.
  Status chose_end() {
    if (ended_) return fail(Code::kFailedPrecondition, "the answer ended twice");
    ended_ = true;
    return {};
  }
  std::span<const int32_t> tokens() const { return tokens_; }

 private:
  std::vector<int32_t> tokens_;
  bool ended_ = false;
};

}  // namespace strata::gateway
