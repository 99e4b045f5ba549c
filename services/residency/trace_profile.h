#pragma once
// The routing profile of recorded conversations: what a cluster that had answered them would have learned.

#include <cstddef>
#include <optional>

#include "services/residency/profile.h"
#include "services/residency/trace.h"

namespace strata::residency {

// Counts and tokens of the generated tokens, topics of all tokens, conversation by conversation in their
// order. without: leaves one conversation out, so that it can be judged on what the others taught. The model
// fingerprint stays empty: a trace does not know it. Layers: the trace's.
Profile profile_of(const RoutingTrace& trace, std::optional<std::size_t> without = std::nullopt);

// The trace with its first `layers` layers alone (at most as many as it has): without the draft layer's.
RoutingTrace first_layers(const RoutingTrace& trace, uint32_t layers);

}  // namespace strata::residency
