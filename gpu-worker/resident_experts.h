#pragma once
// What the expert dispatch asks of the residency: is this expert in the arena now? Answers change at window
// boundaries only.

#include <cstddef>
#include <cstdint>

namespace strata::gpu_worker {

class ResidentExperts {
 public:
  virtual ~ResidentExperts() = default;
  // The published record (model::LayerExperts::expert_at reads it), or nullptr: a miss. Window loop only.
  virtual const std::byte* record(uint32_t layer, uint32_t expert) const = 0;
};

}  // namespace strata::gpu_worker
