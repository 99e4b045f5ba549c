#include "gateway/service/model_card.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "gateway/api/json_text.h"
#include "services/base/build_info.h"

namespace strata::gateway {

namespace {

template <class T, class File, class Setting>
SourcedValue<T> choose(bool in_file, File file, Setting setting) {
  if (in_file) return {.value = static_cast<T>(file), .source = "model"};
  return {.value = static_cast<T>(setting), .source = "configuration"};
}

}  // namespace

SamplingFallbacks sampling_fallbacks(const model::SamplingDefaults& file, const config::Settings& settings) {
  return {
      .temperature = choose<float>(file.has_temperature, file.temperature, settings.sampling_temperature()),
      .top_p = choose<float>(file.has_top_p, file.top_p, settings.sampling_top_p()),
      .min_p = choose<float>(file.has_min_p, file.min_p, settings.sampling_min_p()),
      .top_k = choose<uint32_t>(file.has_top_k, file.top_k, settings.sampling_top_k())};
}

Sampling resolve_sampling(const SamplingFields& fields, const SamplingFallbacks& fallbacks, uint64_t seed) {
  const Sampling defaults;
  return {.temperature = fields.temperature.value_or(fallbacks.temperature.value),
          .top_k = fields.top_k.value_or(fallbacks.top_k.value),
          .top_p = fields.top_p.value_or(fallbacks.top_p.value),
          .min_p = fields.min_p.value_or(fallbacks.min_p.value),
          .repetition_penalty = fields.repetition_penalty.value_or(defaults.repetition_penalty),
          .presence_penalty = fields.presence_penalty.value_or(defaults.presence_penalty),
          .frequency_penalty = fields.frequency_penalty.value_or(defaults.frequency_penalty),
          .penalty_last_n = fields.penalty_last_n.value_or(defaults.penalty_last_n),
          .seed = fields.seed.value_or(seed),
          .logit_bias = fields.logit_bias};
}

uint32_t ThinkingBudgets::of(Effort effort) const {
  switch (effort) {
    case Effort::kMinimal:
      return minimal;
    case Effort::kLow:
      return low;
    case Effort::kMedium:
      return medium;
    case Effort::kHigh:
      return high;
    case Effort::kXhigh:
      break;
  }
  return xhigh;
}

ThinkingBudgets thinking_budgets(const config::Settings& settings) {
  const auto tokens = [](uint32_t setting) { return setting == 0 ? kThinkingUnlimited : setting; };
  return {.minimal = tokens(settings.thinking_minimal_tokens()),
          .low = tokens(settings.thinking_low_tokens()),
          .medium = tokens(settings.thinking_medium_tokens()),
          .high = tokens(settings.thinking_high_tokens()),
          .xhigh = tokens(settings.thinking_xhigh_tokens())};
}

uint32_t resolve_thinking(const ThinkingFields& fields, const ThinkingBudgets& budgets) {
  if (fields.budget_tokens) return *fields.budget_tokens;
  return fields.effort ? budgets.of(*fields.effort) : kThinkingUnlimited;
}

std::string sampling_text(const Sampling& sampling) {
  return fmt::format("temperature={} top_p={} top_k={} min_p={} seed={}", number_text(sampling.temperature),
                     number_text(sampling.top_p), sampling.top_k, number_text(sampling.min_p), sampling.seed);
}

std::string system_fingerprint(std::string_view model_fingerprint, std::string_view numerics,
                               std::string_view device_type) {
  const std::string all = fmt::format("{}|{}|{}|{}", model_fingerprint, numerics, device_type, version());
  return fmt::format("fp_{:016x}", XXH3_64bits(all.data(), all.size()));
}

}  // namespace strata::gateway
