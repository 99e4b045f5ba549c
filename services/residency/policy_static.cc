// The profile's order, whatever is used. Exchanges happen only towards it, after a start with another
// residency.
#include "services/residency/worth_policy.h"

namespace strata::residency {
namespace {

class StaticPolicy final : public WorthPolicy {
 public:
  explicit StaticPolicy(const PolicyOptions& options) : WorthPolicy(options, Margin{}) {}
  std::string_view name() const override { return "static"; }

 private:
  void learn(const Usage&) override {}
};

}  // namespace

std::unique_ptr<Policy> make_static_policy(const PolicyOptions& options) {
  return std::make_unique<StaticPolicy>(options);
}

}  // namespace strata::residency
