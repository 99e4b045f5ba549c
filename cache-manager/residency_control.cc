#include "cache-manager/residency_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "services/base/limits.h"

namespace strata::cache_manager {

using residency::ExpertKey;

namespace {

constexpr double kLayersPerExchange = 2;  // what exchanges_per_window: auto stands for
// From its retirement to its landing an exchange passes two to three window boundaries.
constexpr double kWindowsInFlight = 3;
constexpr uint32_t kInFlightLeast = 4;

Status change_pins(const ControlChange& change, std::vector<ExpertKey>& pins) {
  if (change.unpin_all) pins.clear();
  for (const ExpertKey& key : change.unpin) {
    const auto found = std::ranges::find(pins, key);
    if (found == pins.end())
      return fail(Code::kNotFound, "layer {} expert {} is not pinned", key.layer, key.expert);
    pins.erase(found);
  }
  pins.insert(pins.end(), change.pin.begin(), change.pin.end());
  std::ranges::sort(pins);
  const auto again = std::ranges::unique(pins);  // to pin what is pinned changes nothing
  pins.erase(again.begin(), again.end());
  return {};
}

}  // namespace

residency::BudgetLimits resolve_limits(const ExchangeRates& rates, uint32_t layers) {
  residency::BudgetLimits limits;
  switch (rates.exchanges_per_window.kind) {
    case config::Amount::Kind::kAuto:
      limits.exchanges_per_window = layers / kLayersPerExchange;
      break;
    case config::Amount::Kind::kNumber:
      limits.exchanges_per_window = rates.exchanges_per_window.value;
      break;
    case config::Amount::Kind::kPercent:
      limits.exchanges_per_window = layers * rates.exchanges_per_window.value / 100;
      break;
  }
  if (rates.copy_budget.bytes) limits.bytes_per_second = static_cast<double>(*rates.copy_budget.bytes);
  return limits;
}

uint32_t resolve_in_flight(const ExchangeRates& rates, uint32_t layers) {
  if (rates.exchanges_in_flight.number) return *rates.exchanges_in_flight.number;
  const double wanted = std::ceil(kWindowsInFlight * resolve_limits(rates, layers).exchanges_per_window);
  return static_cast<uint32_t>(std::clamp<double>(wanted, kInFlightLeast, kExchangesInFlightMax));
}

ResidencyControl::ResidencyControl(std::string policy, ExchangeRates rates, uint32_t layers)
    : policy_(std::move(policy)), rates_(rates), configured_policy_(policy_), layers_(layers) {}

Result<ResidencyControl::Made> ResidencyControl::make_policy(const MakePolicy& make,
                                                             const residency::PolicyOptions& options) {
  Made made;
  TRY(made.policy, make(policy_, options));
  made.forgotten = made.policy->control(demands_);
  if (!made.forgotten.ok()) demands_ = {};
  return made;
}

Status ResidencyControl::apply(const ControlChange& change, const MakePolicy& make,
                               const residency::PolicyOptions& options,
                               std::unique_ptr<residency::Policy>& policy) {
  residency::Control demands = demands_;
  if (change.quotas) demands.quotas = *change.quotas;
  TRY_OK(change_pins(change, demands.pins));
  if (change.policy && *change.policy != policy_) {
    TRY(auto other, make(*change.policy, options));
    TRY_OK(other->control(demands));
    policy = std::move(other);
    policy_ = *change.policy;
  } else {
    TRY_OK(policy->control(demands));
  }
  demands_ = std::move(demands);
  if (change.exchanges_per_window) rates_.exchanges_per_window = *change.exchanges_per_window;
  if (change.copy_budget) rates_.copy_budget = *change.copy_budget;
  if (change.exchanges_in_flight) rates_.exchanges_in_flight = *change.exchanges_in_flight;
  rates_changed_ |= change.exchanges_per_window || change.copy_budget || change.exchanges_in_flight;
  return {};
}

bool ResidencyControl::pinned(ExpertKey key) const { return std::ranges::binary_search(demands_.pins, key); }

std::vector<std::string> ResidencyControl::changed() const {
  std::vector<std::string> names;
  if (policy_ != configured_policy_) names.emplace_back("policy");
  if (!demands_.quotas.empty()) names.emplace_back("quotas");
  if (rates_changed_) names.emplace_back("rate");
  if (!demands_.pins.empty()) names.emplace_back("pins");
  return names;
}

}  // namespace strata::cache_manager
