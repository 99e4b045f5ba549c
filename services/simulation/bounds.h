#pragma once
// What a policy's hit rate is measured against. All are of the generated tokens of one conversation, and all
// know its future; none says how much of that a policy could have known.

#include <cstdint>

#include "services/residency/trace.h"
#include "services/simulation/replay.h"

namespace strata::simulation {

using Conversation = residency::RoutingTrace::Conversation;

// The best fixed placement: the experts that the generated tokens use most, slots shared by all layers. What
// a profile of exactly this conversation would give without any exchange. 0 without generated tokens.
double oracle_hit_rate(const residency::RoutingTrace& trace, const Conversation& conversation,
                       uint32_t slots);

// Belady's rule with as many slots and no limit on exchanges: an expert may come in when it was missed, and
// who is needed last goes. It begins with the experts that are needed first. No policy that loads on a miss
// does better; one that loads ahead of need could, with unlimited exchanges up to 1.
double belady_hit_rate(const residency::RoutingTrace& trace, const Conversation& conversation,
                       uint32_t slots);

// The same replay as the policies', under the same limits, by one that knows the next kForesightTokens
// tokens: it holds the experts that these use most. No bound, but what knowing the near future would bring.
inline constexpr uint32_t kForesightTokens = 16;
double foresight_hit_rate(const residency::RoutingTrace& trace, const Conversation& conversation,
                          const ReplayOptions& options);

}  // namespace strata::simulation
