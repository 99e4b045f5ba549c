#pragma once
// The response object of /v1/responses and the events that lead to it.

#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <vector>

#include "gateway/api/response_tools.h"
#include "gateway/generation/answer_format.h"

namespace strata::gateway {

struct ResponsesOptions {
  boost::json::object echo =
      {};  // members of the response that are known before the answer, "store" among them
  ClientTools tools = {};
  std::vector<std::string> warnings = {};
  bool sealed_reasoning = false;
  bool scores = false;  // log probabilities were asked for
};

// identity.id is "resp_" and identity.request_id, of which the ids of its items are made.
std::unique_ptr<AnswerFormat> make_responses_format(AnswerIdentity identity, ResponsesOptions options);

}  // namespace strata::gateway
