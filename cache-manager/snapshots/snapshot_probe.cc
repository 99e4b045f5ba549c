#include "cache-manager/snapshots/snapshot_probe.h"

#include <string>

namespace strata::cache_manager {

using snapshot::Tier;

SnapshotProbe::SnapshotProbe(obs::Metrics& metrics)
    : tiers_{make_tier(metrics, Tier::kRam), make_tier(metrics, Tier::kDisk)},
      load_seconds_(metrics.latency("strata_conv_restore_seconds",
                                    "Time to bring a parked conversation back, by where it lay.",
                                    {{"tier", "disk"}})),
      host_bytes_(metrics.gauge("strata_host_bytes", "Host memory by use.", {{"use", "conv"}})) {}

SnapshotProbe::OfTier SnapshotProbe::make_tier(obs::Metrics& metrics, Tier tier) {
  const obs::Labels labels = {{"tier", std::string(snapshot::tier_name(tier))}};
  OfTier made{
      .bytes = metrics.gauge("strata_conv_bytes", "Bytes of parked conversations.", labels),
      .budget =
          metrics.gauge("strata_conv_budget_bytes", "Bytes that parked conversations may take.", labels),
      .save_seconds = metrics.latency("strata_conv_save_seconds", "Time to park a conversation.", labels)};
  for (uint32_t cause = 0; cause < snapshot::kEvictionCauses; ++cause) {
    obs::Labels with_cause = labels;
    with_cause["cause"] = snapshot::cause_name(static_cast<snapshot::EvictionCause>(cause));
    made.evictions[cause] = &metrics.counter(
        "strata_conv_evictions_total",
        "Parked conversations removed, by why; many for `budget` or `floor`: the budget is small for those "
        "that come back.",
        with_cause);
  }
  return made;
}

void SnapshotProbe::room(Tier tier, uint64_t used_bytes, uint64_t budget_bytes) {
  OfTier& of = tiers_[static_cast<std::size_t>(tier)];
  of.bytes.Set(static_cast<double>(used_bytes));
  of.budget.Set(static_cast<double>(budget_bytes));
  if (tier == Tier::kRam) host_bytes_.Set(static_cast<double>(used_bytes));
}

void SnapshotProbe::removed(Tier tier, const Removals& by_cause) {
  OfTier& of = tiers_[static_cast<std::size_t>(tier)];
  for (std::size_t cause = 0; cause < by_cause.size(); ++cause)
    of.evictions[cause]->Increment(static_cast<double>(by_cause[cause] - of.seen[cause]));
  of.seen = by_cause;
}

void SnapshotProbe::reopened(Tier tier) { tiers_[static_cast<std::size_t>(tier)].seen = {}; }

void SnapshotProbe::saved(Tier tier, double seconds) {
  tiers_[static_cast<std::size_t>(tier)].save_seconds.Observe(seconds);
}

void SnapshotProbe::loaded(double seconds) { load_seconds_.Observe(seconds); }

}  // namespace strata::cache_manager
