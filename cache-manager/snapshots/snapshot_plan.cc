#include "cache-manager/snapshots/snapshot_plan.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "services/sys/cpus.h"

namespace strata::cache_manager {
namespace {

// Parked conversations compete with the page cache that the experts are read from, so they get a small part;
// a 128 GB machine keeps about 100 states of the released model.
constexpr uint64_t kRamShare = 8;
// Boards and the host device's arena lie in /dev/shm, too, and are there first.
constexpr uint64_t kSharedMemoryShare = 2;
constexpr uint64_t kFloorShare = 16;
constexpr uint64_t kFloorBytesMax = uint64_t{4} << 30;
constexpr uint64_t kDiskBudgetBytes = uint64_t{8} << 30;
constexpr uint64_t kDiskFreeBytesMin = uint64_t{2} << 30;

}  // namespace

HostMemory host_memory(const std::string& run_dir) {
  HostMemory memory{.total_bytes = sys::total_memory_bytes()};
  struct statvfs shared{};
  if (::statvfs("/dev/shm", &shared) == 0) memory.shared_bytes = uint64_t{shared.f_blocks} * shared.f_frsize;
  struct statfs run{};
  memory.run_dir_in_memory =
      ::statfs(run_dir.c_str(), &run) == 0 && (run.f_type == TMPFS_MAGIC || run.f_type == RAMFS_MAGIC);
  return memory;
}

Result<SnapshotPlan> plan_snapshots(const config::Settings& settings, const std::string& run_dir,
                                    const HostMemory& memory) {
  SnapshotPlan plan;
  const uint64_t shared_max = memory.shared_bytes == 0 ? UINT64_MAX : memory.shared_bytes;
  const config::Size& ram = settings.conversations_ram_budget();
  if (ram.bytes && *ram.bytes > shared_max) {
    return fail(Code::kResourceExhausted,
                "conversations.ram_budget is {} bytes, /dev/shm can hold {}: lower it, or enlarge /dev/shm "
                "(docker: --shm-size)",
                *ram.bytes, shared_max);
  }
  plan.ram_budget_bytes =
      ram.bytes.value_or(std::min(memory.total_bytes / kRamShare, shared_max / kSharedMemoryShare));
  plan.ram_floor_bytes = settings.conversations_ram_floor().bytes.value_or(
      std::min(memory.total_bytes / kFloorShare, kFloorBytesMax));
  plan.disk_budget_bytes = settings.conversations_disk_budget().bytes.value_or(kDiskBudgetBytes);
  plan.disk_free_bytes_min = settings.conversations_disk_free_min().bytes.value_or(kDiskFreeBytesMin);
  plan.disk_bytes_per_second = settings.conversations_disk_rate().bytes.value_or(0);
  if (plan.disk_budget_bytes == 0) return plan;
  plan.disk_folder = settings.conversations_disk_folder().string();
  if (!plan.disk_folder.empty()) return plan;
  if (memory.run_dir_in_memory) {
    plan.disk_off =
        "the run directory is in memory (tmpfs): conversations.disk_folder can name another place";
  } else {
    plan.disk_folder = run_dir + "/conversations";
  }
  return plan;
}

}  // namespace strata::cache_manager
