#pragma once
// The messages of a chat request in one internal form, before any rule or template looks at them (rules B5,
// B6): every content is a string, developer is system, function results are tool results, function_call is a
// tool call, call arguments are objects where their text is one.

#include <boost/json/array.hpp>

#include "gateway/api/api_error.h"

namespace strata::gateway {

struct Messages {
  boost::json::array
      list;  // {"role", "content", ["name"], ["tool_calls"], ["tool_call_id"], ["reasoning_content"]}
  bool continues_answer = false;  // the last one is the assistant's: the reply goes on from its text
};

// value: the request's "messages". Errors name the place: messages[2].content[0].type.
ApiResult<Messages> normalise_messages(const boost::json::value* value);

// What the dialects ask of a list in this form. The first: the newest question needs its image. The second:
// of a list that is not empty.
ApiError image_refused(std::string where);
bool ends_in_open_answer(const boost::json::array& list);

}  // namespace strata::gateway
