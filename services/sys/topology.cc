#include "services/sys/topology.h"

#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>

#include "services/sys/cgroup.h"
#include "services/sys/cpus.h"
#include "services/sys/errno_status.h"

namespace strata::sys {
namespace {

struct TopologyDeleter {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, TopologyDeleter>;
struct BitmapDeleter {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDeleter>;

HwlocTopology new_topology() {
  hwloc_topology_t raw = nullptr;
  return HwlocTopology(hwloc_topology_init(&raw) == 0 ? raw : nullptr);
}

// A kind of core below this share of the fastest kind's clock is slow. Server parts have favoured cores that
// boost a little higher; those around them are not slow.
constexpr double kSlowClockShare = 0.75;

struct Kind {
  Bitmap cpus;
  double mhz = 0;
  bool atom = false;
};

std::vector<Kind> core_kinds(hwloc_topology_t topology) {
  std::vector<Kind> kinds;
  const int count = hwloc_cpukinds_get_nr(topology, 0);
  for (int i = 0; i < count; ++i) {
    Kind kind{.cpus = Bitmap(hwloc_bitmap_alloc())};
    unsigned info_count = 0;
    hwloc_info_s* infos = nullptr;
    if (hwloc_cpukinds_get_info(topology, static_cast<unsigned>(i), kind.cpus.get(), nullptr, &info_count,
                                &infos, 0) != 0)
      continue;
    for (unsigned info = 0; info < info_count; ++info) {
      const std::string_view name = infos[info].name, value = infos[info].value;
      if (name == "CoreType") kind.atom = value == "IntelAtom";
      if (name == "FrequencyMaxMHz") std::from_chars(value.data(), value.data() + value.size(), kind.mhz);
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

Bitmap slow_cpus(hwloc_topology_t topology) {
  const std::vector<Kind> kinds = core_kinds(topology);
  const bool all_atoms = std::ranges::all_of(kinds, &Kind::atom);
  double mhz_max = 0;
  for (const Kind& kind : kinds) mhz_max = std::max(mhz_max, kind.mhz);
  Bitmap slow(hwloc_bitmap_alloc());
  for (const Kind& kind : kinds) {
    const bool slow_clock = kind.mhz > 0 && kind.mhz < mhz_max * kSlowClockShare;
    if ((kind.atom && !all_atoms) || slow_clock) hwloc_bitmap_or(slow.get(), slow.get(), kind.cpus.get());
  }
  return slow;
}

uint32_t node_of(hwloc_topology_t topology, hwloc_obj_t core) {
  for (hwloc_obj_t node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, nullptr); node != nullptr;
       node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) {
    // Memory without cores of its own (CXL, HBM) has all cores beside it: the first node is the nearest.
    if (hwloc_bitmap_isincluded(core->cpuset, node->cpuset) != 0) return node->os_index;
  }
  return 0;
}

Topology read_topology(hwloc_topology_t topology, const std::vector<uint32_t>& allowed) {
  Topology result;
  const Bitmap slow = slow_cpus(topology);
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) {
    Core found;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      if (std::ranges::binary_search(allowed, static_cast<uint32_t>(cpu)))
        found.cpus.push_back(static_cast<uint32_t>(cpu));
    }
    if (found.cpus.empty()) continue;
    found.node = node_of(topology, core);
    found.slow = hwloc_bitmap_intersects(core->cpuset, slow.get()) != 0;
    result.cores.push_back(std::move(found));
  }
  // Slow beside what? A process that may use E-cores only has one kind.
  if (std::ranges::all_of(result.cores, &Core::slow)) {
    for (Core& core : result.cores) core.slow = false;
  }
  return result;
}

// Allowed CPUs that the topology does not know are cores by themselves.
void add_unknown_cpus(Topology& topology, const std::vector<uint32_t>& allowed) {
  std::vector<uint32_t> known;
  for (const Core& core : topology.cores) known.insert(known.end(), core.cpus.begin(), core.cpus.end());
  for (const uint32_t cpu : allowed) {
    if (std::ranges::find(known, cpu) == known.end()) topology.cores.push_back({.cpus = {cpu}});
  }
}

std::vector<uint32_t> in_order(const std::vector<const Core*>& cores) {
  std::vector<uint32_t> order;
  const auto add = [&](bool slow, std::size_t first, std::size_t last) {
    for (const Core* core : cores) {
      if (core->slow != slow) continue;
      for (std::size_t i = first; i < std::min(last, core->cpus.size()); ++i) order.push_back(core->cpus[i]);
    }
  };
  for (const bool slow : {false, true}) add(slow, 0, 1);
  for (const bool slow : {false, true}) add(slow, 1, SIZE_MAX);
  return order;
}

// CPUs' worth that one group allows; 0: no limit, or none that is known.
double group_quota(const std::filesystem::path& group, CgroupVersion version) {
  double quota = 0, period = 0;
  if (version == CgroupVersion::k2) {
    std::ifstream file(group / "cpu.max");  // "max 100000" or "250000 100000"
    if (!(file >> quota >> period)) return 0;
  } else {
    std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;  // -1: no limit
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

std::vector<uint32_t> Topology::nodes() const {
  std::vector<uint32_t> nodes;
  for (const Core& core : cores) nodes.push_back(core.node);
  std::ranges::sort(nodes);
  nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
  return nodes;
}

uint32_t Topology::cpu_count() const {
  std::size_t count = 0;
  for (const Core& core : cores) count += core.cpus.size();
  return static_cast<uint32_t>(count);
}

uint32_t Topology::busy_cpus_max() const {
  const uint32_t all = std::max(1U, cpu_count());
  if (cpu_quota <= 0 || cpu_quota >= all) return all;
  return std::max(1U, static_cast<uint32_t>(std::floor(cpu_quota)));
}

std::vector<uint32_t> Topology::preferred() const {
  std::vector<const Core*> all;
  for (const Core& core : cores) all.push_back(&core);
  return in_order(all);
}

std::vector<uint32_t> Topology::preferred(uint32_t node) const {
  std::vector<const Core*> of_node;
  for (const Core& core : cores) {
    if (core.node == node) of_node.push_back(&core);
  }
  return in_order(of_node);
}

uint32_t Topology::fast_core_count() const {
  return static_cast<uint32_t>(std::ranges::count(cores, false, &Core::slow));
}

uint32_t Topology::fast_core_count(uint32_t node) const {
  const auto fast =
      std::ranges::count_if(cores, [&](const Core& core) { return core.node == node && !core.slow; });
  return static_cast<uint32_t>(fast > 0 ? fast : std::ranges::count(cores, node, &Core::node));
}

namespace {

Topology look_at_machine() {
  const std::vector<uint32_t> allowed = allowed_cpus();
  Topology result;
  const HwlocTopology topology = new_topology();
  if (topology != nullptr && hwloc_topology_load(topology.get()) == 0)
    result = read_topology(topology.get(), allowed);
  add_unknown_cpus(result, allowed);
  result.cpu_quota = cpu_quota();
  return result;
}

}  // namespace

const Topology& machine_topology() {
  static const Topology topology = look_at_machine();
  return topology;
}

Result<Topology> synthetic_topology(const std::string& notation, const SyntheticOptions& options) {
  const HwlocTopology topology = new_topology();
  if (topology == nullptr || hwloc_topology_set_synthetic(topology.get(), notation.c_str()) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return fail(Code::kInvalidArgument, "'{}' is no topology that hwloc can make", notation);
  }
  const hwloc_const_bitmap_t all_cpus = hwloc_topology_get_topology_cpuset(topology.get());
  if (!options.slow_cpus.empty()) {
    const Bitmap slow(hwloc_bitmap_alloc()), fast(hwloc_bitmap_dup(all_cpus));
    for (const uint32_t cpu : options.slow_cpus) hwloc_bitmap_set(slow.get(), cpu);
    hwloc_bitmap_andnot(fast.get(), fast.get(), slow.get());
    char name[] = "CoreType", atom[] = "IntelAtom", core[] = "IntelCore";
    hwloc_info_s slow_info{.name = name, .value = atom}, fast_info{.name = name, .value = core};
    hwloc_cpukinds_register(topology.get(), slow.get(), 0, 1, &slow_info, 0);
    hwloc_cpukinds_register(topology.get(), fast.get(), 1, 1, &fast_info, 0);
  }
  std::vector<uint32_t> allowed = options.allowed;
  std::ranges::sort(allowed);
  if (allowed.empty()) {
    for (int cpu = hwloc_bitmap_first(all_cpus); cpu >= 0; cpu = hwloc_bitmap_next(all_cpus, cpu))
      allowed.push_back(static_cast<uint32_t>(cpu));
  }
  Topology result = read_topology(topology.get(), allowed);
  result.cpu_quota = options.cpu_quota;
  return result;
}

double cpu_quota(const std::string& proc_root, const std::string& cgroup_root) {
  double least = 0;
  visit_cgroups(proc_root, cgroup_root, "cpu",
                [&](const std::filesystem::path& group, CgroupVersion version) {
                  const double quota = group_quota(group, version);
                  if (quota > 0 && (least == 0 || quota < least)) least = quota;
                });
  return least;
}

double cpu_quota() { return cpu_quota("/proc", "/sys/fs/cgroup"); }

std::vector<uint32_t> cpus_by_preference() { return machine_topology().preferred(); }

uint32_t allowed_core_count() { return static_cast<uint32_t>(machine_topology().cores.size()); }

Status prefer_memory_of_node(uint32_t node) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(node / kBits + 1);
  mask[node / kBits] = 1UL << node % kBits;
  // One bit more than there is: the kernel leaves out the last one it is told of.
  if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1) == 0) return {};
  return fail(errno_code(errno), "cannot prefer memory of NUMA node {}: {}", node, std::strerror(errno));
}

}  // namespace strata::sys
