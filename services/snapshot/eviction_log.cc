#include "services/snapshot/eviction_log.h"

namespace strata::snapshot {

std::string_view cause_name(EvictionCause cause) {
  switch (cause) {
    case EvictionCause::kBudget:
      return "budget";
    case EvictionCause::kDiverged:
      return "diverged";
    case EvictionCause::kFloor:
      return "floor";
    case EvictionCause::kHistory:
      return "history";
    case EvictionCause::kDropped:
      return "dropped";
    case EvictionCause::kDamaged:
      return "damaged";
  }
  return "unknown";
}

void EvictionLog::add(const Eviction& eviction) {
  order_.push_back(eviction);
  by_id_.insert_or_assign(eviction.id, eviction);
  while (!order_.empty() && (order_.size() > options_.count_max ||
                             eviction.when_ms - order_.front().when_ms > options_.age_ms_max)) {
    const Eviction& oldest = order_.front();
    const auto kept = by_id_.find(oldest.id);
    // One that was evicted again later keeps its later record.
    if (kept != by_id_.end() && kept->second.when_ms == oldest.when_ms) by_id_.erase(kept);
    order_.pop_front();
  }
}

std::optional<Eviction> EvictionLog::find(const SnapshotId& id, int64_t now_ms) const {
  const auto place = by_id_.find(id);
  if (place == by_id_.end() || now_ms - place->second.when_ms > options_.age_ms_max) return std::nullopt;
  return place->second;
}

}  // namespace strata::snapshot
