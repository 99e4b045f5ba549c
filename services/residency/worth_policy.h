#pragma once
// What policies have in common: a policy is what it makes of the uses (`worth_`); planning, and what an
// operator demands, are the same for all.

#include <cstdint>
#include <span>
#include <vector>

#include "services/residency/exchange_plan.h"
#include "services/residency/policy.h"

namespace strata::residency {

class WorthPolicy : public Policy {
 public:
  // stay_tokens: minimum residence time, in decode tokens.
  WorthPolicy(const PolicyOptions& options, Margin margin, uint64_t stay_tokens = 0);

  void observe(const Usage& usage) final;
  std::vector<Proposal> propose(std::span<const SlotView> slots, uint32_t budget) final;
  std::span<const uint32_t> quotas() const final {
    return control_.quotas.empty() ? planner_.held() : control_.quotas;
  }
  Status control(Control control) final;

 protected:
  // Spans are empty or (layers, experts).
  virtual void learn(const Usage& usage) = 0;
  void set_margin(Margin margin) { margin_ = margin; }

  ModelShape shape_;
  std::vector<double> worth_;  // (layers, experts); begins as the profile

 private:
  std::vector<uint32_t> experts_;  // (layers)
  uint32_t slots_;
  ExchangePlanner planner_;
  Control control_;
  Margin margin_;
  uint64_t stay_tokens_;
  uint64_t decoded_tokens_ = 0;
};

}  // namespace strata::residency
