#pragma once
// What a profile is worth for traffic that it has not seen: each conversation is judged by the profile of all
// others. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/residency/trace.h"

namespace strata::cli {

// Hit rates of generated tokens' uses, with placements that are never exchanged.
struct PlacementRates {
  double profile = 0;     // of the other conversations' most used experts
  double first_seen = 0;  // slots take what is asked for first, prompt included; equal quotas
  double oracle = 0;      // the best that the conversation itself would have asked for, over all layers
};

struct BudgetRates {
  std::string budget;  // as it was given
  uint32_t slots = 0;
  std::vector<PlacementRates> conversations;  // of the trace, those with generated tokens
  PlacementRates mean() const;
  PlacementRates worst() const;  // the lowest of each
};

// `budgets`: "25%" of all experts in the first `layers` layers (0: all), or a number. kInvalidArgument: a
// budget that is none. kFailedPrecondition: fewer than two conversations with generated tokens.
Result<std::vector<BudgetRates>> cross_validate(const residency::RoutingTrace& trace,
                                                const std::vector<std::string>& budgets, uint32_t layers = 0);

std::string cross_validation_text(const std::vector<BudgetRates>& budgets);
std::string cross_validation_json(const std::vector<BudgetRates>& budgets);

}  // namespace strata::cli
