#include "services/residency/policy.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "services/base/check.h"
#include "services/base/limits.h"
#include "services/residency/exchange_plan.h"
#include "services/residency/quotas.h"

namespace strata::residency {
namespace {

// A policy is what it makes of the uses (`worth_`); planning is the same for all.
class WorthPolicy : public Policy {
 public:
  WorthPolicy(const PolicyOptions& options, Margin margin)
      : shape_(options.shape), quotas_(make_quotas(options)), margin_(margin) {
    worth_.resize(std::size_t{shape_.layers} * shape_.experts);
    std::ranges::copy(options.profile, worth_.begin());
  }

  void observe(std::span<const uint32_t> decode_uses, uint64_t tokens) final {
    CHECK(decode_uses.size() == worth_.size(), "{} counts for {} experts", decode_uses.size(), worth_.size());
    learn(decode_uses, tokens);
  }

  std::vector<Proposal> propose(std::span<const SlotView> slots, uint32_t budget) final {
    return plan_exchanges({shape_, quotas_, worth_, margin_}, slots, budget);
  }

  std::span<const uint32_t> quotas() const final { return quotas_; }

 protected:
  virtual void learn(std::span<const uint32_t> uses, uint64_t tokens) = 0;

  ModelShape shape_;
  std::vector<uint32_t> quotas_;
  std::vector<double> worth_;  // (layers, experts); begins as the profile
  Margin margin_;
};

// The profile's order, whatever is used. Exchanges happen only towards it, after a start with another
// residency.
class StaticPolicy final : public WorthPolicy {
 public:
  explicit StaticPolicy(const PolicyOptions& options) : WorthPolicy(options, Margin{}) {}
  std::string_view name() const override { return "static"; }

 private:
  void learn(std::span<const uint32_t>, uint64_t) override {}
};

// Worth: uses, each counting half after `decay_tokens`. A profile counts like some tokens before the first:
// it decides who comes first, and gives way as soon as the conversation shows what it needs.
class LfuDecayPolicy final : public WorthPolicy {
 public:
  explicit LfuDecayPolicy(const PolicyOptions& options)
      : WorthPolicy(options, kMargin), keep_per_token_(std::exp2(-1.0 / options.decay_tokens)) {
    for (double& worth : worth_) worth *= kProfileTokens;
  }
  std::string_view name() const override { return "lfu-decay"; }

 private:
  // Both measured on recorded routing of the demo model (docs/decisions/010-residency-constants.md).
  static constexpr Margin kMargin{.ratio = 1.25, .difference = 1.0};
  static constexpr double kProfileTokens = 16;

  void learn(std::span<const uint32_t> uses, uint64_t tokens) override {
    if (!profile_scaled_) scale_profile(uses, tokens);
    const double keep = std::pow(keep_per_token_, static_cast<double>(tokens));
    for (std::size_t i = 0; i < worth_.size(); ++i) worth_[i] = worth_[i] * keep + uses[i];
  }

  // A profile holds shares of a layer's uses; how many uses a token makes per layer shows with the first
  // tokens.
  void scale_profile(std::span<const uint32_t> uses, uint64_t tokens) {
    double total = 0;
    for (const uint32_t count : uses) total += count;
    if (tokens == 0 || total == 0) return;
    const double uses_per_token = total / static_cast<double>(tokens) / shape_.layers;
    for (double& worth : worth_) worth *= uses_per_token;
    profile_scaled_ = true;
  }

  double keep_per_token_;
  bool profile_scaled_ = false;
};

// Worth: when an expert was last used. Experts seen in the same call differ by up to half a token, by how
// often they were used; the margin lets no such difference move anything.
class LruPolicy final : public WorthPolicy {
 public:
  explicit LruPolicy(const PolicyOptions& options)
      : WorthPolicy(options, {.ratio = 1, .difference = kPartMax}) {
    for (double& worth : worth_)
      worth = kPartMax * worth - 1;  // before the first token, in the profile's order
  }
  std::string_view name() const override { return "lru"; }

 private:
  static constexpr double kPartMax = 0.5;

  void learn(std::span<const uint32_t> uses, uint64_t tokens) override {
    now_tokens_ += tokens;
    const uint32_t most = uses.empty() ? 0 : std::ranges::max(uses);
    for (std::size_t i = 0; i < worth_.size(); ++i) {
      if (uses[i] > 0) worth_[i] = static_cast<double>(now_tokens_) + kPartMax * uses[i] / (most + 1.0);
    }
  }

  uint64_t now_tokens_ = 0;
};

template <class T>
std::unique_ptr<Policy> make(const PolicyOptions& options) {
  return std::make_unique<T>(options);
}

struct KnownPolicy {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(const PolicyOptions&);
};

constexpr std::array kPolicies = {
    KnownPolicy{"lfu-decay", make<LfuDecayPolicy>},
    KnownPolicy{"lru", make<LruPolicy>},
    KnownPolicy{"static", make<StaticPolicy>},
};

Status check_options(const PolicyOptions& options) {
  const auto [layers, experts] = options.shape;
  if (layers == 0 || layers > kLayersMax || experts == 0 || experts > kExpertsMax) {
    return fail(Code::kInvalidArgument, "a model of {} layers with {} experts, expected 1 to {} and 1 to {}",
                layers, experts, kLayersMax, kExpertsMax);
  }
  if (!options.profile.empty() && options.profile.size() != std::size_t{layers} * experts) {
    return fail(Code::kInvalidArgument, "the profile has {} shares, expected {} layers x {} experts",
                options.profile.size(), layers, experts);
  }
  if (!std::ranges::all_of(options.profile, [](float share) { return share >= 0 && share <= 1; })) {
    return fail(Code::kInvalidArgument, "the profile has shares outside of 0 to 1");
  }
  if (!(options.decay_tokens >= 1) || std::isinf(options.decay_tokens)) {
    return fail(Code::kInvalidArgument, "decay_tokens is {}, expected a number from 1", options.decay_tokens);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, PolicyOptions options) {
  TRY_OK(check_options(options));
  const auto known = std::ranges::find(kPolicies, name, &KnownPolicy::name);
  if (known != kPolicies.end()) return known->make(options);
  std::string names;
  for (const KnownPolicy& policy : kPolicies)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", policy.name);
  return fail(Code::kInvalidArgument, "no residency policy '{}', expected one of: {}", name, names);
}

}  // namespace strata::residency
