#include "services/sys/cpus.h"

#include <hwloc.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "services/sys/errno_status.h"

namespace strata::sys {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDeleter>;

// The CPUs of each core, in the topology's order; empty when hwloc cannot tell.
std::vector<std::vector<uint32_t>> machine_cores() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  Topology topology(raw);
  if (hwloc_topology_load(topology.get()) != 0) return {};
  std::vector<std::vector<uint32_t>> cores;
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, nullptr);
       core != nullptr; core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, core)) {
    std::vector<uint32_t>& cpus = cores.emplace_back();
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      cpus.push_back(static_cast<uint32_t>(cpu));
    }
  }
  return cores;
}

}  // namespace

std::vector<uint32_t> allowed_cpus() {
  // The kernel refuses a set that is smaller than its own, so grow until it fits.
  for (std::size_t cpus_max = 1024; cpus_max <= (std::size_t{1} << 16); cpus_max *= 2) {
    std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus_max),
                                                         [](cpu_set_t* s) { CPU_FREE(s); });
    const std::size_t set_bytes = CPU_ALLOC_SIZE(cpus_max);
    CPU_ZERO_S(set_bytes, set.get());
    if (sched_getaffinity(0, set_bytes, set.get()) != 0) continue;
    std::vector<uint32_t> cpus;
    for (uint32_t cpu = 0; cpu < cpus_max; ++cpu) {
      if (CPU_ISSET_S(cpu, set_bytes, set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  std::vector<uint32_t> cpus(std::max(1U, std::thread::hardware_concurrency()));
  for (uint32_t cpu = 0; cpu < cpus.size(); ++cpu) cpus[cpu] = cpu;
  return cpus;
}

std::vector<uint32_t> order_by_core(const std::vector<std::vector<uint32_t>>& cores,
                                    const std::vector<uint32_t>& allowed) {
  std::vector<uint32_t> ordered;
  ordered.reserve(allowed.size());
  const auto take = [&](uint32_t cpu) {
    if (std::ranges::find(allowed, cpu) == allowed.end() || std::ranges::find(ordered, cpu) != ordered.end())
      return false;
    ordered.push_back(cpu);
    return true;
  };
  for (const auto& core : cores) static_cast<void>(std::ranges::any_of(core, take));
  for (const auto& core : cores) std::ranges::for_each(core, take);
  std::ranges::for_each(allowed, take);  // CPUs that the topology does not know
  return ordered;
}

std::vector<uint32_t> cpus_by_preference() { return order_by_core(machine_cores(), allowed_cpus()); }

uint32_t allowed_core_count() {
  const std::vector<uint32_t> allowed = allowed_cpus();
  const auto is_allowed = [&](uint32_t cpu) { return std::ranges::find(allowed, cpu) != allowed.end(); };
  const auto cores = machine_cores();
  const auto count =
      std::ranges::count_if(cores, [&](const auto& core) { return std::ranges::any_of(core, is_allowed); });
  return count > 0 ? static_cast<uint32_t>(count)
                   : std::max<uint32_t>(1, static_cast<uint32_t>(allowed.size()));
}

Status pin_this_thread(uint32_t cpu) {
  const std::size_t cpus_max = std::max<std::size_t>(1024, cpu + 1);
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus_max),
                                                       [](cpu_set_t* s) { CPU_FREE(s); });
  const std::size_t set_bytes = CPU_ALLOC_SIZE(cpus_max);
  CPU_ZERO_S(set_bytes, set.get());
  CPU_SET_S(cpu, set_bytes, set.get());
  const int error = pthread_setaffinity_np(pthread_self(), set_bytes, set.get());
  if (error != 0)
    return fail(errno_code(error), "cannot pin a thread to CPU {}: {}", cpu, std::strerror(error));
  return {};
}

void name_this_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace strata::sys
