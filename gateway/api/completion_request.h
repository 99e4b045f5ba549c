#pragma once
// The body of POST /v1/completions, checked: text goes on where the prompt ends, no chat template.

#include <boost/json/object.hpp>
#include <string>
#include <variant>
#include <vector>

#include "gateway/api/answer_form.h"
#include "gateway/api/request_fields.h"

namespace strata::gateway {

inline constexpr uint32_t kCompletionTokensDefault = 16;  // of the original API
inline constexpr uint32_t kPromptsMax = 64;

using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;  // text, or token ids

struct CompletionRequest {
  CommonFields common;
  std::vector<CompletionPrompt> prompts;  // common.n choices each
  uint32_t best_of = 1;                   // answers to each prompt, of which the n best are given; at least n
  AnswerForm form;
  bool echo = false;
};

ApiResult<CompletionRequest> parse_completion_request(const boost::json::object& body, uint32_t vocab);

}  // namespace strata::gateway
