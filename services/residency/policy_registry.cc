// The policies by name, and what they all demand of their options.
#include <algorithm>
#include <array>
#include <cmath>

#include "services/base/limits.h"
#include "services/residency/policy.h"

namespace strata::residency {

// One line per policy, in alphabetical order: its name, and the function of its file that makes it.
#define STRATA_RESIDENCY_POLICIES(POLICY)    \
  POLICY("lfu", make_lfu_policy)             \
  POLICY("lfu-decay", make_lfu_decay_policy) \
  POLICY("lru", make_lru_policy)             \
  POLICY("static", make_static_policy)       \
  POLICY("topic", make_topic_policy)

#define STRATA_DECLARE(name, make) std::unique_ptr<Policy> make(const PolicyOptions& options);
STRATA_RESIDENCY_POLICIES(STRATA_DECLARE)
#undef STRATA_DECLARE

namespace {

struct KnownPolicy {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(const PolicyOptions&);
};

#define STRATA_ENTRY(name, make) KnownPolicy{name, make},
constexpr auto kPolicies = std::to_array<KnownPolicy>({STRATA_RESIDENCY_POLICIES(STRATA_ENTRY)});
#undef STRATA_ENTRY

Status check_shape(const PolicyOptions& options) {
  const auto [layers, experts] = options.shape;
  if (layers == 0 || layers > kLayersMax || experts == 0 || experts > kExpertsMax) {
    return fail(Code::kInvalidArgument, "a model of {} layers with {} experts, expected 1 to {} and 1 to {}",
                layers, experts, kLayersMax, kExpertsMax);
  }
  if (options.experts_of_layer.empty()) return {};
  if (options.experts_of_layer.size() != layers ||
      std::ranges::any_of(options.experts_of_layer, [&](uint32_t n) { return n == 0 || n > experts; })) {
    return fail(Code::kInvalidArgument, "expert counts of {} layers, expected {}, each from 1 to {}",
                options.experts_of_layer.size(), layers, experts);
  }
  return {};
}

Status check_options(const PolicyOptions& options) {
  TRY_OK(check_shape(options));
  const auto [layers, experts] = options.shape;
  if (!options.profile.empty() && options.profile.size() != std::size_t{layers} * experts) {
    return fail(Code::kInvalidArgument, "the profile has {} shares, expected {} layers x {} experts",
                options.profile.size(), layers, experts);
  }
  if (!std::ranges::all_of(options.profile, [](float share) { return share >= 0 && share <= 1; })) {
    return fail(Code::kInvalidArgument, "the profile has shares outside of 0 to 1");
  }
  if (!std::ranges::all_of(options.topics, [&](const Topic& topic) {
        return topic.tokens > 0 && topic.counts.size() == std::size_t{layers} * experts;
      })) {
    return fail(Code::kInvalidArgument,
                "a topic without tokens, or with other counts than {} layers x {} experts", layers, experts);
  }
  if (!(options.decay_tokens >= 1) || std::isinf(options.decay_tokens)) {
    return fail(Code::kInvalidArgument, "decay_tokens is {}, expected a number from 1", options.decay_tokens);
  }
  return {};
}

}  // namespace

std::vector<uint32_t> experts_of_layers(const PolicyOptions& options) {
  if (!options.experts_of_layer.empty()) return options.experts_of_layer;
  return std::vector<uint32_t>(options.shape.layers, options.shape.experts);
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const KnownPolicy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, PolicyOptions options) {
  TRY_OK(check_options(options));
  const auto known = std::ranges::find(kPolicies, name, &KnownPolicy::name);
  if (known != kPolicies.end()) return known->make(options);
  return fail(Code::kInvalidArgument, "no residency policy '{}', expected one of: {}", name,
              fmt::join(policy_names(), ", "));
}

}  // namespace strata::residency
