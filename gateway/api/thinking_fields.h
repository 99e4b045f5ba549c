#pragma once
// How much a model may think before it answers, as the dialects ask for it: on or off, levels of effort,
// numbers of tokens. What a level is worth is a setting (gateway/service/model_card.h).

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "gateway/api/field_reader.h"

namespace strata::gateway {

enum class Effort : uint8_t { kMinimal, kLow, kMedium, kHigh, kXhigh };

inline constexpr std::pair<std::string_view, Effort> kEfforts[] = {{"minimal", Effort::kMinimal},
                                                                   {"low", Effort::kLow},
                                                                   {"medium", Effort::kMedium},
                                                                   {"high", Effort::kHigh},
                                                                   {"xhigh", Effort::kXhigh}};

inline constexpr uint32_t kThinkingUnlimited = std::numeric_limits<uint32_t>::max();

struct ThinkingFields {
  std::optional<bool> on = {};  // asked for on or off; not set: the configuration decides
  std::optional<Effort> effort = {};
  // Asked for as a number, which wins over the level. 0 tokens are off, if nothing else was asked for.
  std::optional<uint32_t> budget_tokens = {};
};

// Of OpenAI's dialects and their relatives. The most explicit field wins: enable_thinking, thinking.type,
// reasoning_effort, reasoning.enabled, reasoning.effort; of the numbers reasoning_budget_tokens
// (thinking_budget_tokens), thinking.budget_tokens, reasoning.max_tokens. Faults go to `fields`.
ThinkingFields read_thinking_fields(FieldReader& fields);

// Of Anthropic's: thinking, output_config.effort. Without the first a request does not think (rule B15).
ThinkingFields read_message_thinking(FieldReader& fields);

}  // namespace strata::gateway
