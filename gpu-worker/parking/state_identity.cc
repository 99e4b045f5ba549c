#include "gpu-worker/parking/state_identity.h"

namespace strata::gpu_worker {

namespace {

constexpr uint32_t kLayoutVersion = 1;  // of the bytes inside of the arrays

}  // namespace

snapshot::StateIdentity state_identity(const StateOrigin& origin, const StateLayout& layout) {
  snapshot::StateIdentity identity{.model_fingerprint = origin.model_fingerprint,
                                   .numerics = origin.numerics,
                                   // Names, widths and places of all arrays; 8-bit keys bring arrays of
                                   // their own.
                                   .kv_format = fmt::format("arrays {:016x}", layout.hash()),
                                   .layout_version = kLayoutVersion,
                                   .page_tokens = kStatePageTokens,
                                   .page_bytes = layout.page_bytes(),
                                   .fixed_bytes = layout.fixed_bytes(),
                                   .parts = {},
                                   .options = {}};
  for (const StateLayout::Part& part : layout.fixed_parts())
    identity.parts.push_back({.name = part.name, .offset = part.offset, .bytes = part.bytes});
  if (origin.numerics == "fast") identity.options += fmt::format("device={}\n", origin.device_type);
  if (!origin.synthetic_routing.empty())
    identity.options += fmt::format("synthetic_routing={}\n", origin.synthetic_routing);
  return identity;
}

}  // namespace strata::gpu_worker
