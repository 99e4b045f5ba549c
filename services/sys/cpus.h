#pragma once
// Which cores this process may use, which of them to pin threads to, and what memory there is (cgroup limits
// respected).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::sys {

// CPUs allowed by sched_getaffinity (which reflects cpusets), ascending.
std::vector<uint32_t> allowed_cpus();
// machine_topology().preferred() and the number of its cores (topology.h).
std::vector<uint32_t> cpus_by_preference();
uint32_t allowed_core_count();
// Pins the calling thread; failure is reported, never fatal.
Status pin_this_thread(uint32_t cpu);
// Neither this thread nor those that it starts from now on leave these CPUs, unless they are pinned.
Status keep_this_thread_on(std::span<const uint32_t> cpus);
void name_this_thread(const std::string& name);  // 15 characters at most

// Memory that may still be used: MemAvailable or what the cgroup (v1, v2) leaves, whichever is less.
uint64_t available_memory_bytes();
// The same read below other roots than "/proc" and "/sys/fs/cgroup"; for tests.
uint64_t available_memory_bytes(const std::string& proc_root, const std::string& cgroup_root);

// All memory there is: the machine's, or what the tightest control group allows if that is less.
uint64_t total_memory_bytes();
uint64_t total_memory_bytes(const std::string& proc_root, const std::string& cgroup_root);

}  // namespace strata::sys
