#include "gateway/api/chat_request.h"

#include <fmt/format.h>

#include "gateway/api/json_text.h"
#include "services/base/limits.h"

namespace strata::gateway {

namespace {

// Names that the template gets from us and nobody else.
constexpr std::string_view kReservedVariables[] = {"messages", "tools", "add_generation_prompt"};

// Inside chat_template_kwargs the switch wins over all other fields that say something about thinking.
void read_template_variables(FieldReader& fields, ChatRequest& request) {
  const auto* variables = fields.object("chat_template_kwargs");
  if (variables == nullptr) return;
  FieldReader nested(*variables, "chat_template_kwargs.");
  if (auto enabled = nested.boolean("enable_thinking")) request.thinking.on = enabled;
  for (std::string_view name : kReservedVariables) {
    if (variables->contains(name))
      nested.fail(name, fmt::format("chat_template_kwargs must not set {}", name));
  }
  if (nested.failed()) fields.fail(nested.error().value());
  request.template_variables = *variables;
  request.template_variables.erase("enable_thinking");
}

void read_logprobs(FieldReader& fields, CommonFields& common) {
  common.logprobs = fields.boolean("logprobs").value_or(false);
  auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && !common.logprobs) fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
  common.top_logprobs = static_cast<uint32_t>(top.value_or(0));
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(const boost::json::object& body, uint32_t vocab) {
  FieldReader fields(body);
  ChatRequest request;
  request.common = read_common_fields(fields, vocab);
  read_logprobs(fields, request.common);
  request.form = read_answer_form(fields);
  request.tools = read_tools(fields);
  request.thinking = read_thinking_fields(fields);
  read_template_variables(fields, request);
  if (auto best_of = fields.integer("best_of", 1, kBestOfMax); best_of && *best_of != request.common.n) {
    fields.fail("best_of",
                fmt::format("best_of is of /v1/completions; here it can only be n, got {}", *best_of));
  }
  request.return_progress = fields.boolean("return_progress").value_or(false);
  if (fields.failed()) return fields.error();
  auto messages = normalise_messages(body.if_contains("messages"));
  if (!messages) return tl::unexpected(std::move(messages).error());
  request.messages = std::move(*messages);
  return request;
}

}  // namespace strata::gateway
