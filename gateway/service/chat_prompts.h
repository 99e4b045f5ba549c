#pragma once
// From a chat request to the model's prompt, through the chat template of the model's own file.

#include <memory>
#include <string>

#include "gateway/api/chat_request.h"
#include "gateway/chat_template/chat_template.h"
#include "services/base/status.h"
#include "services/grammar/tool_calls.h"
#include "services/tokenizer/marked_text.h"

namespace strata::gateway {

class ChatPrompts {
 public:
  // source: the template's text. thinking_variable, thinking_default: as configured.
  static Result<ChatPrompts> parse(std::string_view source, std::string thinking_variable,
                                   std::string thinking_default);

  // A template that refuses the messages is a fault of the request (rule B7): 400 with the template's words.
  ApiResult<tokenizer::MarkedText> render(const ChatRequest& request) const;
  // How the template wants calls to be written.
  grammar::ToolFormat call_format() const { return call_format_; }

 private:
  ChatPrompts(chat_template::ChatTemplate parsed, grammar::ToolFormat call_format,
              std::string thinking_variable, std::string thinking_default)
      : template_(std::move(parsed)),
        call_format_(call_format),
        thinking_variable_(std::move(thinking_variable)),
        thinking_default_(std::move(thinking_default)) {}

  chat_template::ChatTemplate template_;
  grammar::ToolFormat call_format_;
  std::string thinking_variable_, thinking_default_;
};

}  // namespace strata::gateway
