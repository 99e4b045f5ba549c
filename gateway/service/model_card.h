#pragma once
// What the gateway tells about its model and how it treats requests that leave things out. Fixed after
// start-up.

#include <cstdint>
#include <string>

#include "gateway/api/request_fields.h"
#include "gateway/api/thinking_fields.h"
#include "gateway/engine/engine_client.h"
#include "services/config/settings.h"
#include "services/model/model_config.h"

namespace strata::gateway {

// A sampling value and where it comes from: "model" (the GGUF file) or "configuration".
template <class T>
struct SourcedValue {
  T value{};
  std::string_view source = {};
};

struct SamplingFallbacks {
  SourcedValue<float> temperature, top_p, min_p;
  SourcedValue<uint32_t> top_k;
};

// Field by field: the file's recommendation, else the setting (rule A1).
SamplingFallbacks sampling_fallbacks(const model::SamplingDefaults& file, const config::Settings& settings);

// Tokens of thinking at each level of effort; kThinkingUnlimited: no limit of its own.
struct ThinkingBudgets {
  uint32_t minimal = kThinkingUnlimited, low = kThinkingUnlimited, medium = kThinkingUnlimited,
           high = kThinkingUnlimited, xhigh = kThinkingUnlimited;

  uint32_t of(Effort effort) const;
};

ThinkingBudgets thinking_budgets(const config::Settings& settings);

struct ModelCard {
  std::string id;
  int64_t created = 0;  // Unix time in seconds, of this server's start
  uint32_t context_tokens =
      0;  // what one request may use; before the engine is ready: what the configuration says
  uint32_t sequences = 0;
  std::string system_fingerprint;
  SamplingFallbacks fallbacks;
  std::string thinking_variable;  // of the template
  std::string thinking_default;   // "template", "on", "off"
  ThinkingBudgets thinking_budgets;
  std::string file_name;  // of the model, without its folder
  std::string chat_template;
};

// Every field decided. seed: used when the request names none.
Sampling resolve_sampling(const SamplingFields& fields, const SamplingFallbacks& fallbacks, uint64_t seed);

// How many tokens of thinking a request allows, whatever the cap of its answer leaves of them.
uint32_t resolve_thinking(const ThinkingFields& fields, const ThinkingBudgets& budgets);

// "temperature=0.6 top_p=0.9 top_k=20 min_p=0 seed=42": the x-strata-sampling header.
std::string sampling_text(const Sampling& sampling);

// Changes with whatever can change an answer, never with placement.
std::string system_fingerprint(std::string_view model_fingerprint, std::string_view numerics,
                               std::string_view device_type);

}  // namespace strata::gateway
