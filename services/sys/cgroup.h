#pragma once
// The control groups of this process, version 1 and 2.

#include <filesystem>
#include <functional>
#include <string>

namespace strata::sys {

// Names of files differ between the versions, meanings do not.
enum class CgroupVersion { k1, k2 };

// Calls visit(folder, version) for every group whose limits of `controller` ("memory", "cpu") hold for this
// process, from the root down to its own. In a container the path of the host may not exist below the mount:
// then only the mount's own root is there, which is the container's group.
void visit_cgroups(const std::string& proc_root, const std::string& cgroup_root,
                   const std::string& controller,
                   const std::function<void(const std::filesystem::path&, CgroupVersion)>& visit);

}  // namespace strata::sys
