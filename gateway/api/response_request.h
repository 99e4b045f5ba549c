#pragma once
// The body of POST /v1/responses, checked. What it goes on from is not known yet: the messages come later
// (response_items.h).

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "gateway/api/chat_request.h"
#include "gateway/api/response_items.h"
#include "gateway/api/response_tools.h"

namespace strata::gateway {

struct ResponseRequest {
  std::string serial = {};  // its id is resp_<serial>
  ChatRequest chat = {};    // all but the messages
  ClientTools tools = {};
  std::string instructions = {};
  ResponseInput input = {};
  std::string previous = {};      // response id; empty: none
  bool store = true;              // as asked for
  bool sealed_reasoning = false;  // reasoning items carry all that is needed to send them back
  boost::json::object echo = {};  // fields of the request that the response repeats
  std::vector<std::string> warnings = {};
};

ApiResult<ResponseRequest> parse_response_request(const boost::json::object& body, uint32_t vocab,
                                                  std::string_view serial);

}  // namespace strata::gateway
