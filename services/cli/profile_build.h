#pragma once
// Routing profiles from recorded traces and from other profiles. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/residency/profile.h"
#include "services/residency/trace.h"

namespace strata::cli {

// Counts the generated tokens' experts in the first `layers` layers (0: all; a trace may hold the draft layer
// behind the trunk's), and learns topics from all tokens. The fingerprint is left empty. kInvalidArgument: fewer layers than that.
// kFailedPrecondition: nothing was generated.
Result<residency::Profile> profile_of(const residency::RoutingTrace& trace, uint32_t layers = 0);

// The counts of one conversation, without topics; may be all zeros.
residency::Profile profile_of(const residency::RoutingTrace& trace,
                              const residency::RoutingTrace::Conversation& conversation, uint32_t layers);

// Adds counts and tokens; topics are left alone. Both have the same shape.
void add_to(residency::Profile& sum, const residency::Profile& other);

// The sum of the profiles, each counted `weights` times (rounded to whole uses; empty: once each), with the
// topics of all, whatever their weights, as one TopicLearner groups them. `names`
// stand for them in errors. kFailedPrecondition: profiles of two models. kInvalidArgument: no profile,
// another number of weights, or one that is not above 0.
struct NamedProfile {
  std::string name;
  residency::Profile profile;
};
Result<residency::Profile> merge_profiles(std::span<const NamedProfile> profiles,
                                          std::span<const double> weights);

// A trace file, or all *.bin of a folder in the order of their names, as one trace. kNotFound: no trace
// there. kFailedPrecondition: traces of two shapes.
Result<residency::RoutingTrace> read_traces(const std::string& path);

}  // namespace strata::cli
