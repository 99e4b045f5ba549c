#pragma once
// Routing without a trained router, for measuring speed: experts are drawn with a given skew, each layer with
// a ranking of its own, the hot ones slowly changing along a sequence; or they are replayed from a recorded
// trace. About 0.2 us per token and layer (10 of 512 experts).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/model/routing_override.h"

namespace strata::model {

// Experts by heat, each part drawn evenly: the hottest 1/8, 1/4 and 1/2 of a layer's experts get these shares
// of the picks.
struct RoutingSkew {
  double eighth = 0.59, quarter = 0.79, half = 0.95;
};

// The setting engine.synthetic_routing, read.
struct SyntheticRoutingSpec {
  std::string trace;  // a file of recorded routing (models/README.md); empty: drawn
  RoutingSkew skew;
  double drift = 0.01;  // share of the hot half that is exchanged against cold ones per kDriftTokens
  uint64_t seed = 1;
};
inline constexpr uint32_t kDriftTokens = 64;

// "mild,drift=0.01,seed=7", "strong", "uniform", "skew=0.59/0.79/0.95", "trace:FILE" (all behind the colon is
// the file). kInvalidArgument names the part that is wrong.
Result<SyntheticRoutingSpec> parse_synthetic_routing(std::string_view text);

struct RoutingShape {
  std::vector<uint32_t> experts;  // per layer
  uint32_t used = 0;              // per token
};

// kInvalidArgument, kNotFound, kDataLoss: the trace cannot be read or is of more experts than a layer has. A
// trace of fewer experts is stretched: each of its experts stands for an equal range of the layer's, of which
// one is drawn. One of fewer picks per token takes the missing ones from the tokens that follow, one of fewer
// layers repeats them.
Result<std::unique_ptr<RoutingOverride>> make_synthetic_routing(const SyntheticRoutingSpec& spec,
                                                                const RoutingShape& shape);

}  // namespace strata::model
