#include "services/snapshot/value.h"

#include <algorithm>
#include <cmath>

namespace strata::snapshot {
namespace {

// A read from the disk tier takes about a fifth of reading the prompt anew (issue: 15 % of a cold read).
constexpr double kElsewhereWeight = 0.2;

double place_weight(SnapshotKind kind, bool leaf) {
  if (kind == SnapshotKind::kRoot) return 1;
  if (leaf) return kind == SnapshotKind::kInterval ? 0.5 : 1;
  switch (kind) {
    case SnapshotKind::kBeforeLastUser:
      return 0.3;
    case SnapshotKind::kInterval:
      return 0.05;
    default:
      return 0.1;
  }
}

}  // namespace

double snapshot_value(const ValueInputs& inputs, const ValueOptions& options) {
  const double half_lives =
      static_cast<double>(std::max<int64_t>(inputs.idle_ms, 0)) / static_cast<double>(options.half_life_ms);
  const double weight = place_weight(inputs.kind, inputs.leaf) * (inputs.elsewhere ? kElsewhereWeight : 1) *
                        std::exp2(-half_lives);
  return weight * std::max(inputs.seconds_lost, 0.0) /
         static_cast<double>(std::max<uint64_t>(inputs.freed_bytes, 1));
}

}  // namespace strata::snapshot
