#pragma once
// How much room parked conversations get: the settings conversations.*, with what `auto` means here.

#include <cstdint>
#include <string>

#include "services/base/status.h"
#include "services/config/settings.h"

namespace strata::cache_manager {

struct SnapshotPlan {
  uint64_t ram_budget_bytes = 0;  // 0: nothing is kept, on disk neither
  uint64_t ram_floor_bytes = 0;
  std::string disk_folder;  // empty: no disk tier
  std::string disk_off;     // why there is none although it is configured; empty: there is, or it is not
  uint64_t disk_budget_bytes = 0;
  uint64_t disk_free_bytes_min = 0;
  uint64_t disk_bytes_per_second = 0;  // 0: no bound
};

// What the plan depends on besides the settings.
struct HostMemory {
  uint64_t total_bytes = 0;        // sys::total_memory_bytes()
  uint64_t shared_bytes = 0;       // that /dev/shm may ever hold; 0: no limit of its own
  bool run_dir_in_memory = false;  // the run directory lies on a tmpfs
};
HostMemory host_memory(const std::string& run_dir);

// kResourceExhausted: a configured budget that /dev/shm can never hold.
Result<SnapshotPlan> plan_snapshots(const config::Settings& settings, const std::string& run_dir,
                                    const HostMemory& memory);

}  // namespace strata::cache_manager
