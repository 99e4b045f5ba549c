#pragma once
// Which cores this process may use, which of them to pin threads to, and what memory there is (cgroup limits
// respected).

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::sys {

// CPUs allowed by sched_getaffinity (which reflects cpusets), ascending.
std::vector<uint32_t> allowed_cpus();
// One allowed CPU per physical core first, then the SMT siblings (hwloc; falls back to allowed_cpus()). Cores
// stand in the order of the topology, so neighbours share a cache and a NUMA node.
std::vector<uint32_t> cpus_by_preference();
// The rule behind it: `cores` lists the CPUs of each core.
std::vector<uint32_t> order_by_core(const std::vector<std::vector<uint32_t>>& cores,
                                    const std::vector<uint32_t>& allowed);
uint32_t allowed_core_count();  // physical cores with an allowed CPU; at least 1
// Pins the calling thread; failure is reported, never fatal.
Status pin_this_thread(uint32_t cpu);
void name_this_thread(const std::string& name);  // 15 characters at most

// Memory that may still be used: MemAvailable or what the cgroup (v1, v2) leaves, whichever is less.
uint64_t available_memory_bytes();
// The same read below other roots than "/proc" and "/sys/fs/cgroup"; for tests.
uint64_t available_memory_bytes(const std::string& proc_root, const std::string& cgroup_root);

}  // namespace strata::sys
