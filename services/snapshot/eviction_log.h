#pragma once
// Why a snapshot is not here any more, for as long as somebody may ask ("evicted" instead of "new" in an
// answer about reuse).

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "services/snapshot/types.h"

namespace strata::snapshot {

enum class EvictionCause : uint8_t {
  kBudget = 0,    // worth least when another needed room
  kDiverged = 1,  // its history went on another way; room was needed
  kFloor = 2,     // the machine's free memory fell under the floor
  kHistory = 3,   // more snapshots of one conversation than allowed
  kDropped = 4,   // somebody asked for it
  kDamaged = 5,   // its bytes are not what was stored
};
inline constexpr uint32_t kEvictionCauses = 6;
std::string_view cause_name(
    EvictionCause cause);  // "budget", "diverged", "floor", "history", "dropped", "damaged"

struct Eviction {
  SnapshotId id;
  Tier tier = Tier::kRam;
  EvictionCause cause = EvictionCause::kBudget;
  int64_t when_ms = 0;
  uint32_t position = 0;
  uint64_t freed_bytes = 0;
};

struct EvictionLogOptions {
  uint32_t count_max = 4096;         // the oldest are forgotten first
  int64_t age_ms_max = 3600 * 1000;  // forgotten after
};

class EvictionLog {
 public:
  explicit EvictionLog(const EvictionLogOptions& options) : options_(options) {}

  void add(const Eviction& eviction);
  // Stored again: not gone.
  void forget(const SnapshotId& id) { by_id_.erase(id); }
  // The latest eviction of that id; nullopt: none, or too long ago.
  std::optional<Eviction> find(const SnapshotId& id, int64_t now_ms) const;
  std::size_t size() const { return order_.size(); }

 private:
  EvictionLogOptions options_;
  std::deque<Eviction> order_;  // oldest first
  std::unordered_map<SnapshotId, Eviction, Hash128Hasher> by_id_;
};

}  // namespace strata::snapshot
