#include "gateway/api/thinking_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();

// -1: as many as there is room for.
std::optional<uint32_t> read_budget(FieldReader& fields, std::string_view name, int64_t min) {
  const auto tokens = fields.integer(name, min, kTokensMax);
  if (!tokens) return {};
  return *tokens < 0 ? kThinkingUnlimited : static_cast<uint32_t>(*tokens);
}

// A level, which says on as well, or "none", which says off.
void read_effort(FieldReader& fields, std::string_view name, ThinkingFields& thinking) {
  const auto word = fields.string(name);
  if (!word) return;
  if (*word == "none") {
    thinking.on = false;
    thinking.effort.reset();
    return;
  }
  const auto* level = std::ranges::find(kEfforts, *word, &std::pair<std::string_view, Effort>::first);
  if (level == std::end(kEfforts)) {
    fields.fail(name, fmt::format("{} must be none, minimal, low, medium, high or xhigh, got {}",
                                  fields.full_name(name), snippet(*word)));
    return;
  }
  thinking.on = true;
  thinking.effort = level->second;
}

void read_reasoning(FieldReader& fields, ThinkingFields& thinking) {
  const boost::json::object* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader nested(*reasoning, fields.full_name("reasoning."));
  read_effort(nested, "effort", thinking);
  if (const auto tokens = read_budget(nested, "max_tokens", 0)) {
    thinking.budget_tokens = tokens;
    thinking.on = *tokens > 0;
  }
  if (const auto enabled = nested.boolean("enabled")) thinking.on = enabled;
  if (nested.failed()) fields.fail(nested.error().value());
}

// {"type": "enabled" | "disabled" | "adaptive", "budget_tokens": n}
void read_typed_thinking(FieldReader& fields, ThinkingFields& thinking) {
  const boost::json::object* object = fields.object("thinking");
  if (object == nullptr) return;
  FieldReader nested(*object, fields.full_name("thinking."));
  const std::string_view type = nested.string("type").value_or("");
  if (const auto tokens = read_budget(nested, "budget_tokens", 1)) thinking.budget_tokens = tokens;
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    nested.fail("type", fmt::format("{} must be enabled, disabled or adaptive, got {}",
                                    nested.full_name("type"), snippet(type)));
  }
  if (nested.failed()) fields.fail(nested.error().value());
  thinking.on = type != "disabled";
}

}  // namespace

ThinkingFields read_thinking_fields(FieldReader& fields) {
  ThinkingFields thinking;
  read_reasoning(fields, thinking);
  read_effort(fields, "reasoning_effort", thinking);
  read_typed_thinking(fields, thinking);
  if (const auto enabled = fields.boolean("enable_thinking")) thinking.on = enabled;
  for (const std::string_view name : {"thinking_budget_tokens", "reasoning_budget_tokens"}) {
    const auto tokens = read_budget(fields, name, -1);
    if (!tokens) continue;
    thinking.budget_tokens = tokens;
    if (*tokens == 0 && !thinking.on) thinking.on = false;
  }
  return thinking;
}

ThinkingFields read_message_thinking(FieldReader& fields) {
  ThinkingFields thinking;
  if (const boost::json::object* config = fields.object("output_config")) {
    FieldReader nested(*config, "output_config.");
    // This dialect's highest level is a name of its own.
    const boost::json::value* word = nested.find("effort");
    if (word != nullptr && *word == "max") {
      thinking.effort = Effort::kXhigh;
    } else {
      read_effort(nested, "effort", thinking);
    }
    if (nested.failed()) fields.fail(nested.error().value());
  }
  thinking.on = false;
  read_typed_thinking(fields, thinking);
  return thinking;
}

}  // namespace strata::gateway
