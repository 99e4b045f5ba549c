// available_memory_bytes(): what /proc/meminfo says, less what the process's control groups allow.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

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

// The names of the files differ between the versions, the meaning does not.
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

// The least of the group and everything above it. In a container the path of the host may not exist below the
// mount: then only the mount's own root is looked at, which is the container's group.
uint64_t hierarchy_leaves(const fs::path& mount, const std::string& path, const CgroupFiles& files) {
  uint64_t least = group_leaves(mount, files);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    if (part == "..") break;
    group /= part;
    least = std::min(least, group_leaves(group, files));
  }
  return least;
}

bool lists_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) break;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

uint64_t available_memory_bytes(const std::string& proc_root, const std::string& cgroup_root) {
  uint64_t available = UINT64_MAX;
  if (const auto kib = read_field(fs::path(proc_root) / "meminfo", "MemAvailable:")) available = *kib * 1024;
  // Lines of "id:controllers:path"; version 2 is id 0 without controllers.
  std::ifstream groups(fs::path(proc_root) / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      available = std::min(available, hierarchy_leaves(cgroup_root, path, kVersion2));
    } else if (lists_memory(controllers)) {
      available = std::min(available, hierarchy_leaves(fs::path(cgroup_root) / "memory", path, kVersion1));
    }
  }
  return available;
}

uint64_t available_memory_bytes() { return available_memory_bytes("/proc", "/sys/fs/cgroup"); }

}  // namespace strata::sys
