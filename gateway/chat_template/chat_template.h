#pragma once
// The chat template of a model: a Jinja program in the GGUF that turns a conversation into the text of a
// prompt (docs/chat-template.md: language, origins, limits).
//
// What the template wrote and what a request brought stay distinguishable byte by byte through every
// operation, so that a request can never spell a control token (rule A7). Templates come from downloaded
// files and are not trusted to end: work, depth and size are bounded.
//
// Immutable after parse(); any thread may render.

#include <boost/json.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "services/base/status.h"
#include "services/tokenizer/marked_text.h"

namespace strata::chat_template {

struct RenderInput {
  boost::json::value messages;  // Origin::kRequest, as are the next two
  boost::json::value tools;     // null: none
  boost::json::object request_variables;
  bool add_generation_prompt = true;
  boost::json::object variables;  // trusted (Origin::kTemplate): settings of the server, spellings of tokens
  std::optional<int64_t> now_s;   // what strftime_now() takes for the time, Unix seconds; else the clock
};

class ChatTemplate {
 public:
  // kInvalidArgument: "chat template:LINE: what is wrong".
  static Result<ChatTemplate> parse(std::string_view source);

  // kInvalidArgument: the template refused the conversation (raise_exception; the message has its words) or
  // failed on it. kResourceExhausted: a limit. Both begin with "chat template:LINE: ".
  Result<tokenizer::MarkedText> render(const RenderInput& input) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace strata::chat_template
