#pragma once
// The body of POST /v1/messages and /v1/messages/count_tokens (Anthropic's dialect) in the form of a chat
// request: from here on both dialects are one.

#include <boost/json/object.hpp>

#include "gateway/api/chat_request.h"

namespace strata::gateway {

enum class MessagesUse : uint8_t {
  kGenerate,
  kCount,  // max_tokens may be missing
};

ApiResult<ChatRequest> parse_messages_request(const boost::json::object& body, uint32_t vocab,
                                              MessagesUse use);

}  // namespace strata::gateway
