#pragma once
// Metrics of the parked conversations (spec: metrics, "Conversation cache"). How many there are is counted by
// the gateway's index; here is what they take, and what saving and loading them costs.

#include <array>
#include <cstdint>
#include <span>

#include "services/obs/metrics.h"
#include "services/snapshot/eviction_log.h"
#include "services/snapshot/types.h"

namespace strata::cache_manager {

class SnapshotProbe {
 public:
  explicit SnapshotProbe(obs::Metrics& metrics);

  void room(snapshot::Tier tier, uint64_t used_bytes, uint64_t budget_bytes);
  // by_cause: removals since the tier was opened; what is new is added. A tier opened anew begins at 0.
  using Removals = std::array<uint64_t, snapshot::kEvictionCauses>;
  void removed(snapshot::Tier tier, const Removals& by_cause);
  void reopened(snapshot::Tier tier);
  void saved(snapshot::Tier tier, double seconds);  // RAM: reserved to committed; disk: queued to durable
  void loaded(double seconds);                      // from disk into RAM

 private:
  struct OfTier {
    prometheus::Gauge& bytes;
    prometheus::Gauge& budget;
    prometheus::Histogram& save_seconds;
    std::array<prometheus::Counter*, snapshot::kEvictionCauses> evictions = {};
    Removals seen = {};
  };
  static OfTier make_tier(obs::Metrics& metrics, snapshot::Tier tier);

  std::array<OfTier, snapshot::kTiers> tiers_;
  prometheus::Histogram& load_seconds_;
  prometheus::Gauge& host_bytes_;
};

}  // namespace strata::cache_manager
