#pragma once
// Which experts of which layers a profile is hot on, at a glance.

#include <cstdint>
#include <string>

#include "services/residency/profile.h"

namespace strata::cli {

// A line per layer, `columns` wide at most (20 at least); a character stands for one expert, or for several
// neighbours where there are more than fit. Its shade says how their mean use compares with even use of all
// experts: the last line explains the shades. UTF-8.
std::string heat_map_text(const residency::Profile& profile, uint32_t columns);

// A drawing with a cell per expert, a row per layer. Colours go up to four times even use.
std::string heat_map_svg(const residency::Profile& profile);

}  // namespace strata::cli
