#pragma once
// The body of POST /v1/chat/completions, checked.

#include <boost/json/object.hpp>

#include "gateway/api/answer_form.h"
#include "gateway/api/messages.h"
#include "gateway/api/request_fields.h"
#include "gateway/api/thinking_fields.h"
#include "gateway/api/tools.h"

namespace strata::gateway {

struct ChatRequest {
  CommonFields common;
  Messages messages;
  Tools tools;
  AnswerForm form;
  ThinkingFields thinking;
  boost::json::object template_variables;  // chat_template_kwargs, without enable_thinking
  bool return_progress = false;
};

ApiResult<ChatRequest> parse_chat_request(const boost::json::object& body, uint32_t vocab);

}  // namespace strata::gateway
