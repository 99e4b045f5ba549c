#pragma once
// What an operator may change while the cache manager runs: the policy, quotas, pins and how fast exchanges
// are made. A change counts from the next exchange on, as a whole or not at all. It survives a restart of the
// gpu-worker; a restart of the cache manager begins with the configuration again.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/config/property.h"
#include "services/residency/exchange_budget.h"
#include "services/residency/policy.h"

namespace strata::cache_manager {

// As the settings of these names say it; resolve_*() make numbers of them.
struct ExchangeRates {
  config::Amount exchanges_per_window;  // a percentage is one of the layers; auto: 50%
  config::Size copy_budget;             // bytes per second; auto: no bound
  config::Count exchanges_in_flight;    // auto: what three windows may begin, at least 4
};
residency::BudgetLimits resolve_limits(const ExchangeRates& rates, uint32_t layers);
uint32_t resolve_in_flight(const ExchangeRates& rates, uint32_t layers);

struct ControlChange {
  std::optional<std::string> policy;
  std::optional<config::Amount> exchanges_per_window;
  std::optional<config::Size> copy_budget;
  std::optional<config::Count> exchanges_in_flight;
  std::optional<std::vector<uint32_t>> quotas;  // (layers); empty: those of the policy
  std::vector<residency::ExpertKey> pin, unpin;
  bool unpin_all = false;  // before `pin`
  // Demands other experts than before: what is being fetched may not be wanted any more.
  bool redirects() const { return policy || quotas || !pin.empty(); }
};

class ResidencyControl {
 public:
  using MakePolicy =
      std::function<Result<std::unique_ptr<residency::Policy>>(std::string_view, residency::PolicyOptions)>;

  ResidencyControl(std::string policy, ExchangeRates rates, uint32_t layers);

  // The present policy for another gpu-worker. Quotas and pins that no longer fit its slots are forgotten,
  // and `forgotten` says why.
  struct Made {
    std::unique_ptr<residency::Policy> policy;
    Status forgotten;
  };
  Result<Made> make_policy(const MakePolicy& make, const residency::PolicyOptions& options);

  // Applies the change to `policy`, which becomes another one if the change names one. Errors, and nothing
  // has changed: kInvalidArgument (an unknown policy, an expert that the model does not have, quotas or pins
  // that do not fit), kNotFound (an expert to unpin is not pinned).
  Status apply(const ControlChange& change, const MakePolicy& make, const residency::PolicyOptions& options,
               std::unique_ptr<residency::Policy>& policy);

  const std::string& policy() const { return policy_; }
  const ExchangeRates& rates() const { return rates_; }
  std::span<const uint32_t> quotas() const { return demands_.quotas; }          // empty: those of the policy
  std::span<const residency::ExpertKey> pins() const { return demands_.pins; }  // ascending
  bool pinned(residency::ExpertKey key) const;
  residency::BudgetLimits limits() const { return resolve_limits(rates_, layers_); }
  uint32_t in_flight_max() const { return resolve_in_flight(rates_, layers_); }
  // What is not as configured, in the order of the command's words.
  std::vector<std::string> changed() const;

 private:
  std::string policy_;
  ExchangeRates rates_;
  residency::Control demands_;
  std::string configured_policy_;
  uint32_t layers_;
  bool rates_changed_ = false;
};

}  // namespace strata::cache_manager
