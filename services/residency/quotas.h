#pragma once
// How many slots each layer gets. Slots handed out first-come would all go to the layers that are asked
// first.

#include <cstdint>
#include <vector>

#include "services/residency/policy.h"

namespace strata::residency {

// How many experts each layer has.
std::vector<uint32_t> experts_of_layers(const PolicyOptions& options);

// Sums to the slots, or to all experts if these are fewer. Every layer gets a slot as long as there are that
// many.
//   without profile: equal parts; what does not divide, or what a layer has no experts for, goes to the first
//   layers that have room, one each. with profile: every layer keeps half of an equal part, the rest goes one
//   by one to the layer whose next most used expert carries the largest share of its layer's uses. All layers
//   route equally many experts per token, so shares compare.
std::vector<uint32_t> make_quotas(const PolicyOptions& options);

}  // namespace strata::residency
