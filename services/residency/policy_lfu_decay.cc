// Worth: uses by generated tokens, each counting half after `decay_tokens`. A profile counts like some tokens
// before the first: it decides who comes first, and gives way as soon as the conversation shows what it
// needs.
#include <cmath>

#include "services/residency/worth_policy.h"

namespace strata::residency {
namespace {

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

  void learn(const Usage& usage) override {
    const auto uses = usage.decode_uses;
    const auto tokens = static_cast<double>(usage.decode_tokens);
    if (uses.empty()) return;
    if (!profile_scaled_) scale_profile(uses, tokens);
    const double keep = std::pow(keep_per_token_, tokens);
    for (std::size_t i = 0; i < worth_.size(); ++i) worth_[i] = worth_[i] * keep + uses[i];
  }

  // A profile holds shares of a layer's uses; how many uses a token makes per layer shows with the first
  // tokens.
  void scale_profile(std::span<const uint32_t> uses, double tokens) {
    double total = 0;
    for (const uint32_t count : uses) total += count;
    if (tokens == 0 || total == 0) return;
    const double uses_per_token = total / tokens / shape_.layers;
    for (double& worth : worth_) worth *= uses_per_token;
    profile_scaled_ = true;
  }

  double keep_per_token_;
  bool profile_scaled_ = false;
};

}  // namespace

std::unique_ptr<Policy> make_lfu_decay_policy(const PolicyOptions& options) {
  return std::make_unique<LfuDecayPolicy>(options);
}

}  // namespace strata::residency
