#include "gateway/service/chat_prompts.h"

namespace strata::gateway {

namespace {

// A continued answer: nothing of what the template writes behind the assistant's text may stay. The text is
// the last thing that came from the request, and every byte knows where it came from.
tokenizer::MarkedText cut_behind_last_request_text(const tokenizer::MarkedText& text) {
  for (auto run = text.runs().rbegin(); run != text.runs().rend(); ++run) {
    if (run->origin == tokenizer::Origin::kRequest) return text.slice(0, run->end);
  }
  return text;
}

}  // namespace

Result<ChatPrompts> ChatPrompts::parse(std::string_view source, std::string thinking_variable,
                                       std::string thinking_default) {
  TRY(auto parsed, chat_template::ChatTemplate::parse(source));
  return ChatPrompts(std::move(parsed), grammar::tool_format_of_template(source),
                     std::move(thinking_variable), std::move(thinking_default));
}

ApiResult<tokenizer::MarkedText> ChatPrompts::render(const ChatRequest& request) const {
  chat_template::RenderInput input;
  input.messages = request.messages.list;
  if (!request.tools.offered.empty()) input.tools = request.tools.offered;
  input.request_variables = request.template_variables;
  input.add_generation_prompt = !request.messages.continues_answer;
  // A value that the request gives the variable by its own name counts, unless the switch says something,
  // too.
  const bool named = input.request_variables.contains(thinking_variable_);
  if (request.thinking.on) {
    input.request_variables.erase(thinking_variable_);
    input.variables[thinking_variable_] = *request.thinking.on;
  } else if (!named && thinking_default_ != "template") {
    input.variables[thinking_variable_] = thinking_default_ == "on";
  }
  auto text = template_.render(input);
  if (!text) {
    ApiError error = invalid_request(text.error().message(), "messages");
    error.code = "chat_template_error";
    return tl::unexpected(std::move(error));
  }
  return request.messages.continues_answer ? cut_behind_last_request_text(*text) : std::move(*text);
}

}  // namespace strata::gateway
