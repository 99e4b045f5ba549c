// Memory: what /proc/meminfo says, or what the process's control groups allow if that is less.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "services/sys/cgroup.h"
#include "services/sys/cpus.h"

namespace strata::sys {
namespace {

namespace fs = std::filesystem;

// A file that holds one number; nullopt: absent, or "max".
std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

// The number behind `key` in lines of "key value" or "key: value kB".
std::optional<uint64_t> read_field(const fs::path& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* stat_prefix;  // v1: totals with the children's
};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", ""};

// What one group still allows. Its page cache counts as usage but gives way, so it counts as available.
uint64_t group_leaves(const fs::path& group, const CgroupFiles& files) {
  const auto limit = read_number(group / files.limit);
  const auto usage = read_number(group / files.usage);
  if (!limit || !usage) return UINT64_MAX;
  const std::string prefix = files.stat_prefix;
  const uint64_t cache = read_field(group / "memory.stat", prefix + "inactive_file").value_or(0) +
                         read_field(group / "memory.stat", prefix + "active_file").value_or(0);
  const uint64_t held = *usage - std::min(cache, *usage);
  return *limit - std::min(held, *limit);
}

}  // namespace

uint64_t available_memory_bytes(const std::string& proc_root, const std::string& cgroup_root) {
  uint64_t available = UINT64_MAX;
  if (const auto kib = read_field(fs::path(proc_root) / "meminfo", "MemAvailable:")) available = *kib * 1024;
  visit_cgroups(proc_root, cgroup_root, "memory", [&](const fs::path& group, CgroupVersion version) {
    available =
        std::min(available, group_leaves(group, version == CgroupVersion::k1 ? kVersion1 : kVersion2));
  });
  return available;
}

uint64_t available_memory_bytes() { return available_memory_bytes("/proc", "/sys/fs/cgroup"); }

uint64_t total_memory_bytes(const std::string& proc_root, const std::string& cgroup_root) {
  uint64_t total = UINT64_MAX;
  if (const auto kib = read_field(fs::path(proc_root) / "meminfo", "MemTotal:")) total = *kib * 1024;
  visit_cgroups(proc_root, cgroup_root, "memory", [&](const fs::path& group, CgroupVersion version) {
    const CgroupFiles& files = version == CgroupVersion::k1 ? kVersion1 : kVersion2;
    total = std::min(total, read_number(group / files.limit).value_or(UINT64_MAX));
  });
  return total;
}

uint64_t total_memory_bytes() { return total_memory_bytes("/proc", "/sys/fs/cgroup"); }

}  // namespace strata::sys
