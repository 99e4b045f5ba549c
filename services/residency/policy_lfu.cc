// Plain frequency: worth is how often an expert was used by generated tokens since the start; before the
// first of them, the profile's order. What it never forgets it cannot follow: the measure that others beat.
#include "services/residency/worth_policy.h"

namespace strata::residency {
namespace {

class LfuPolicy final : public WorthPolicy {
 public:
  explicit LfuPolicy(const PolicyOptions& options) : WorthPolicy(options, Margin{}) {}
  std::string_view name() const override { return "lfu"; }

 private:
  // The profile's shares are at most 1, so they only decide between experts of equal use.
  void learn(const Usage& usage) override {
    for (std::size_t i = 0; i < usage.decode_uses.size(); ++i) worth_[i] += usage.decode_uses[i];
  }
};

}  // namespace

std::unique_ptr<Policy> make_lfu_policy(const PolicyOptions& options) {
  return std::make_unique<LfuPolicy>(options);
}

}  // namespace strata::residency
