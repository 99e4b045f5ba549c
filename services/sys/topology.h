#pragma once
// The cores this process may use, and which of them threads should be pinned to first: found by hwloc, within
// the process's affinity, its cpuset and the CPU quota of its control groups.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace strata::sys {

// A physical core with at least one allowed CPU.
struct Core {
  std::vector<uint32_t> cpus;  // allowed ones, ascending: SMT siblings
  uint32_t node = 0;           // NUMA node, as the system numbers it
  bool slow = false;           // of a less efficient kind (E-core) beside faster ones that are allowed, too
};

struct Topology {
  std::vector<Core> cores;  // in the order of the machine: neighbours share caches and a NUMA node
  double cpu_quota = 0;     // CPUs' worth of time that the control groups allow; 0: no limit

  std::vector<uint32_t> nodes() const;  // with a core, ascending
  uint32_t cpu_count() const;
  // CPUs that can be busy at the same time: all, or the whole ones that the quota pays for; at least 1.
  uint32_t busy_cpus_max() const;
  // One CPU of each fast core, one of each slow core, then the SMT siblings in the same order.
  std::vector<uint32_t> preferred() const;
  // The same of one NUMA node.
  std::vector<uint32_t> preferred(uint32_t node) const;
  // Cores that are not slow; of a node that has slow ones only, those.
  uint32_t fast_core_count() const;
  uint32_t fast_core_count(uint32_t node) const;
};

// This machine as this process may use it: as it was when the process first asked, before it kept threads on
// some of the CPUs. Where hwloc knows nothing, every allowed CPU is a core.
const Topology& machine_topology();

// A made-up machine in hwloc's synthetic notation ("pack:2 numa:1 l3:4 core:8 pu:2"), for tests of whatever
// plans with a topology. allowed: CPUs of the process, empty: all. slow_cpus: CPUs of E-cores.
// kInvalidArgument: hwloc does not understand the notation.
struct SyntheticOptions {
  std::vector<uint32_t> allowed = {};
  std::vector<uint32_t> slow_cpus = {};
  double cpu_quota = 0;
};
Result<Topology> synthetic_topology(const std::string& notation, const SyntheticOptions& options = {});

// CPUs' worth of time that the process's control groups (v1 and v2, all levels) allow; 0: no limit.
double cpu_quota();
// The same read below other roots than "/proc" and "/sys/fs/cgroup"; for tests.
double cpu_quota(const std::string& proc_root, const std::string& cgroup_root);

// Memory that this thread, and threads that it starts, touch first comes from this node while it has some.
// Errors (a container may forbid it) are for the log: everything works without.
Status prefer_memory_of_node(uint32_t node);

}  // namespace strata::sys
