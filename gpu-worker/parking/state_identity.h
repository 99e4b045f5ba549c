#pragma once
// What the states of this gpu-worker are, for stores of them: states of two identities are never mixed.

#include <string>
#include <string_view>

#include "gpu-worker/state_layout.h"
#include "services/snapshot/types.h"

namespace strata::gpu_worker {

struct StateOrigin {
  std::string model_fingerprint;
  std::string numerics;
  std::string_view device_type;
  std::string synthetic_routing;  // engine.synthetic_routing
};

// Devices of equal layouts compute the same bits, except with numerics `fast`: then the device belongs to it.
snapshot::StateIdentity state_identity(const StateOrigin& origin, const StateLayout& layout);

}  // namespace strata::gpu_worker
