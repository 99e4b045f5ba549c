#pragma once
// From "what is each expert worth" to "what to copy now": the part that all policies share.

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
  ModelShape shape;
  std::span<const uint32_t> experts;  // (layers): how many each has
  std::span<const uint32_t> quotas;   // (layers)
  std::span<const double> worth;      // (layers, experts), finite
  std::span<const ExpertKey> pins;    // worth more than any other, and never victims
  Margin margin;
};

// At most `budget` proposals:
//   1. free slots, for layers below their quota: the most worthy experts first, of equal ones a round over
//   the layers;
//   2. when no slot is free, from layers above their quota (it was another one when they were filled) to
//   layers below;
//   3. within a layer, the most worthy absent experts for the least worthy residents, as far as the margin
//   allows; the
//      exchanges with the largest difference first.
// Of experts with equal worth the one with the lower number counts as the better one.
std::vector<Proposal> plan_exchanges(const PlanInput& input, std::span<const SlotView> slots,
                                     uint32_t budget);

}  // namespace strata::residency
