#pragma once
// Whether what an operator demands can be had.

#include <cstdint>
#include <span>

#include "services/residency/policy.h"

namespace strata::residency {

// experts: of each layer; slots: of the arena. Errors as Policy::control() lists them.
Status check_control(const Control& control, std::span<const uint32_t> experts, uint32_t slots);

}  // namespace strata::residency
