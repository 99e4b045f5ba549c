#pragma once
// Which cores this process may use, which of them to pin threads to, and what memory there is (cgroup limits respected).

#include <cstdint>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::sys {

// CPUs allowed by sched_getaffinity (which reflects cpusets), ascending.
std::vector<uint32_t> allowed_cpus();
// One allowed CPU per physical core first, then the SMT siblings (hwloc; falls back to allowed_cpus()).
std::vector<uint32_t> cpus_by_preference();
// Pins the calling thread; failure is reported, never fatal.
Status pin_this_thread(uint32_t cpu);
void name_this_thread(const std::string& name);  // 15 characters at most
// Memory that may still be used: MemAvailable or what the cgroup (v1, v2) leaves, whichever is less.
uint64_t available_memory_bytes();

}  // namespace strata::sys
