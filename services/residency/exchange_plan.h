#pragma once
// From "what is each expert worth" to "what to copy now": the part that all policies share.
//
// Slots belong to whoever is worth most, whatever its layer: the worth at which the last slot goes is then
// the same in all layers, which is the division of slots by marginal gain, kept up to date. Only where an
// operator sets quotas does each layer have slots of its own.

#include <cstdint>
#include <span>
#include <vector>

#include "services/residency/policy.h"

namespace strata::residency {

// An exchange happens only if newcomer > ratio * victim + difference. Without a margin two experts of about
// equal use would take each other's slot for ever, and every exchange costs copy bandwidth and a time in
// which neither is resident.
struct Margin {
  double ratio = 1;
  double difference = 0;
};

struct PlanInput {
  std::span<const uint32_t> quotas;  // (layers); empty: all layers share the slots
  std::span<const double> worth;     // (layers, experts), finite
  std::span<const ExpertKey> pins;   // worth more than any other, and never victims
  Margin margin;
  uint64_t now_tokens = 0;   // the policy's clock
  uint64_t stay_tokens = 0;  // so long what this planner proposed is no victim, unless a pinned expert waits
};

class ExchangePlanner {
 public:
  // experts: how many each layer has, at most shape.experts.
  ExchangePlanner(ModelShape shape, std::span<const uint32_t> experts);

  // At most `budget` proposals:
  //   1. free slots: the most worthy absent experts first;
  //   2. with quotas and when no slot is free: from layers above their quota (it was another one when they
  //      were filled) to layers below;
  //   3. the most worthy absent experts for the least worthy residents, best for worst, as far as the margin
  //      allows; with quotas, within each layer, the exchanges with the largest difference first.
  // Of equal worth the lower number of the expert counts as the better one, then that of the layer: without
  // any knowledge the slots go round over the layers.
  // Work: one pass over slots and experts, no sort of either.
  std::vector<Proposal> plan(const PlanInput& input, std::span<const SlotView> slots, uint32_t budget);

  // Slots that each layer held, proposals included, when plan() last returned.
  std::span<const uint32_t> held() const { return held_; }

 private:
  friend class Plan;

  enum class State : uint8_t {
    kAbsent,
    kPinnedAbsent,
    kPresent
  };  // kPresent also: the layer has no such expert

  ModelShape shape_;
  uint64_t experts_total_ = 0;
  std::vector<State> absent_;        // (layers, experts): what an empty arena looks like
  std::vector<State> state_;         // (layers, experts)
  std::vector<uint64_t> may_go_at_;  // (layers, experts): the clock from which it may be a victim
  std::vector<uint32_t> held_;       // (layers)
};

}  // namespace strata::residency
