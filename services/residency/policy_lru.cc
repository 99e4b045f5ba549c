// Worth: when an expert was last used by a generated token. Experts seen in the same call differ by up to
// half a token, by how often they were used; the margin lets no such difference move anything.
#include <algorithm>

#include "services/residency/worth_policy.h"

namespace strata::residency {
namespace {

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

  void learn(const Usage& usage) override {
    const auto uses = usage.decode_uses;
    now_tokens_ += usage.decode_tokens;
    const uint32_t most = uses.empty() ? 0 : std::ranges::max(uses);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i] > 0) worth_[i] = static_cast<double>(now_tokens_) + kPartMax * uses[i] / (most + 1.0);
    }
  }

  uint64_t now_tokens_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_lru_policy(const PolicyOptions& options) {
  return std::make_unique<LruPolicy>(options);
}

}  // namespace strata::residency
