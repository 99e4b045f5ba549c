#include "services/sys/cgroup.h"

#include <fstream>
#include <string_view>

namespace strata::sys {
namespace {

namespace fs = std::filesystem;

bool lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == controller) return true;
    if (comma == std::string_view::npos) break;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

// Version 1 mounts controllers together as "cpu,cpuacct", mostly with links of their single names beside it.
fs::path mount_of(const fs::path& root, const std::string& controller, const std::string& controllers) {
  std::error_code error;
  return fs::exists(root / controller, error) ? root / controller : root / controllers;
}

}  // namespace

void visit_cgroups(const std::string& proc_root, const std::string& cgroup_root,
                   const std::string& controller,
                   const std::function<void(const fs::path&, CgroupVersion)>& visit) {
  // Lines of "id:controllers:path"; version 2 is id 0 without controllers.
  std::ifstream groups(fs::path(proc_root) / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && !lists(controllers, controller)) continue;
    fs::path group = version2 ? fs::path(cgroup_root) : mount_of(cgroup_root, controller, controllers);
    const CgroupVersion version = version2 ? CgroupVersion::k2 : CgroupVersion::k1;
    visit(group, version);
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      if (part == "..") break;
      group /= part;
      visit(group, version);
    }
  }
}

}  // namespace strata::sys
