#include "gateway/api/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/string.hpp>

#include "gateway/api/json_text.h"
#include "services/base/limits.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
// Names that the template gets from us and nobody else.
constexpr std::string_view kReservedVariables[] = {"messages", "tools", "add_generation_prompt"};

// An effort level as a switch: this model can think or not, there is nothing in between.
std::optional<bool> read_effort(FieldReader& fields, std::string_view name) {
  auto effort = fields.string(name);
  if (!effort) return {};
  if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
    fields.fail(name, fmt::format("{} must be none, minimal, low, medium, high or xhigh, got {}", name,
                                  snippet(*effort)));
    return {};
  }
  return *effort != "none";
}

// The most explicit field wins: chat_template_kwargs.enable_thinking, enable_thinking, reasoning_effort,
// reasoning.effort.
std::optional<bool> read_thinking(FieldReader& fields, ChatRequest& request) {
  std::optional<bool> thinking;
  if (const auto* reasoning = fields.object("reasoning")) {
    FieldReader nested(*reasoning, "reasoning.");
    thinking = read_effort(nested, "effort");
    if (nested.failed()) fields.fail(nested.error().value());
  }
  if (auto effort = read_effort(fields, "reasoning_effort")) thinking = effort;
  if (auto enabled = fields.boolean("enable_thinking")) thinking = enabled;
  if (const auto* variables = fields.object("chat_template_kwargs")) {
    FieldReader nested(*variables, "chat_template_kwargs.");
    if (auto enabled = nested.boolean("enable_thinking")) thinking = enabled;
    for (std::string_view name : kReservedVariables) {
      if (variables->contains(name))
        nested.fail(name, fmt::format("chat_template_kwargs must not set {}", name));
    }
    if (nested.failed()) fields.fail(nested.error().value());
    request.template_variables = *variables;
    request.template_variables.erase("enable_thinking");
  }
  return thinking;
}

void read_logprobs(FieldReader& fields, CommonFields& common) {
  common.logprobs = fields.boolean("logprobs").value_or(false);
  auto top = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && !common.logprobs) fields.fail("top_logprobs", "top_logprobs needs logprobs to be true");
  common.top_logprobs = static_cast<uint32_t>(top.value_or(0));
}

void check_response_format(FieldReader& fields) {
  const auto* format = fields.object("response_format");
  if (format == nullptr) return;
  FieldReader nested(*format, "response_format.");
  auto type = nested.string("type").value_or("");
  if (type == "json_object" || type == "json_schema") {
    nested.fail("type", fmt::format("response_format {} is not supported by this version", snippet(type)));
  } else if (type != "text") {
    nested.fail("type", fmt::format("response_format.type must be \"text\", got {}", snippet(type)));
  }
  if (nested.failed()) fields.fail(nested.error().value());
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(const boost::json::object& body, uint32_t vocab) {
  FieldReader fields(body);
  ChatRequest request;
  request.common = read_common_fields(fields, vocab);
  read_logprobs(fields, request.common);
  check_response_format(fields);
  request.tools = read_tools(fields);
  request.thinking = read_thinking(fields, request);
  request.return_progress = fields.boolean("return_progress").value_or(false);
  if (fields.failed()) return fields.error();
  auto messages = normalise_messages(body.if_contains("messages"));
  if (!messages) return tl::unexpected(std::move(messages).error());
  request.messages = std::move(*messages);
  return request;
}

}  // namespace strata::gateway
