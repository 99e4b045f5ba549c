#pragma once
// A placement that never changes: the most used experts of a profile, and how often routed uses find theirs
// there. What a profile promises, and what cross-validation holds it to.

#include <cstdint>
#include <span>
#include <vector>

#include "services/residency/profile.h"

namespace strata::cli {

// (layers, experts): resident or not. What the policy `static` puts into that many free slots.
std::vector<bool> place_by_profile(const residency::Profile& profile, uint32_t slots);

// Share of the counted uses (layers, experts) that find their expert; 0 where nothing was counted.
double hit_rate(const std::vector<bool>& resident, std::span<const uint64_t> uses);

}  // namespace strata::cli
