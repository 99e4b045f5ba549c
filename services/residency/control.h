#pragma once
// Whether what an operator demands can be had.

#include <cstdint>
#include <span>

#include "services/residency/policy.h"

namespace strata::residency {

// experts: of each layer; own_quotas: the policy's, which hold when the control has none. Errors as
// Policy::control() lists them.
Status check_control(const Control& control, std::span<const uint32_t> experts,
                     std::span<const uint32_t> own_quotas);

}  // namespace strata::residency
