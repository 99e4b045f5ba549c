#include "services/expert/thread_plan.h"

#include <algorithm>
#include <charconv>

#include "services/base/limits.h"
#include "services/obs/log.h"
#include "services/sys/cpus.h"

namespace strata::expert {
namespace {

// Where cores are short, the window loop sleeps soon: the workers' threads need its core.
constexpr uint32_t kYieldingParkUs = 200;
constexpr uint32_t kParkUs = 2000;
constexpr uint32_t kCoresPerSpare = 16;

uint32_t park_after_us(const config::Settings& settings) {
  return settings.cpu_experts_park_after_us().number.value_or(kParkUs);
}

std::string waiting(const shm::WaitPolicy& wait) { return wait.yield ? "yielding" : "spinning"; }

class Planner {
 public:
  Planner(const config::Settings& settings, const sys::Topology& topology)
      : settings_(settings),
        topology_(topology),
        nodes_(topology.nodes()),
        workers_(worker_count(settings, topology)),
        per_node_(nodes_.size() > 1 && workers_ >= nodes_.size()),
        host_(settings.device_type() == "host"),
        siblings_(topology.cpu_count() > topology.cores.size()),
        reserved_(host_ ? host_device_threads(settings, topology) : 1),
        busy_max_(topology.cpu_quota > 0 && topology.cpu_quota < topology.cpu_count()
                      ? topology.busy_cpus_max() - 1
                      : topology.busy_cpus_max()) {}

  std::optional<uint32_t> node(uint32_t index) const {
    if (!per_node_) return std::nullopt;
    return nodes_[index % nodes_.size()];
  }

  uint32_t threads(uint32_t index) const {
    if (told_threads()) return settings_.cpu_experts_threads();
    // On the host device hits and misses are computed at the same time, so the workers take half of the
    // cores; beside a GPU all but the window loop's and, where no siblings are left to everybody else, one in
    // kCoresPerSpare: on 16 such cores a layer's misses took as long with 13 threads as with 15, and the
    // longest pauses were shorter.
    const auto for_experts = [&](uint32_t cores, uint32_t taken) {
      return host_ ? cores / 2 : cores - std::min(cores, taken);
    };
    const uint32_t cores = core_count(index), spare = siblings_ ? 0 : cores / kCoresPerSpare;
    const uint32_t by_cores = for_experts(cores, beside_the_device(index) ? 1 + spare : 0) / sharing(index);
    const uint32_t by_quota = for_experts(busy_max_, 1) / std::max(1U, workers_);
    return std::clamp(std::min(by_cores, by_quota), 1U, kExpertThreadsMax);
  }

  // CPU of each thread.
  std::vector<uint32_t> cpus(uint32_t index) const {
    const uint32_t before = per_node_ ? index / static_cast<uint32_t>(nodes_.size()) : index;
    const std::size_t first = std::size_t{before} * threads(index);
    const std::vector<uint32_t> own = expert_cpus(index);
    if (first + threads(index) <= own.size()) {
      const auto begin = own.begin() + static_cast<std::ptrdiff_t>(first);
      return {begin, begin + threads(index)};
    }
    // Only where it was told to be pinned: around the whole machine.
    const std::vector<uint32_t> order = preferred(index);
    std::vector<uint32_t> cpus;
    for (uint32_t thread = 0; thread < threads(index) && !order.empty(); ++thread)
      cpus.push_back(order[((beside_the_device(index) ? reserved_ : 0) + first + thread) % order.size()]);
    return cpus;
  }

  bool short_of_cores() const {
    uint64_t all = reserved_;
    for (uint32_t index = 0; index < workers_; ++index) all += threads(index);
    if (all > busy_max_) return true;
    // The first worker of each part of the machine stands for all that share it.
    const uint32_t parts = per_node_ ? static_cast<uint32_t>(nodes_.size()) : std::min(workers_, 1U);
    for (uint32_t index = 0; index < parts; ++index) {
      if (std::size_t{threads(index)} * sharing(index) > expert_cpus(index).size()) return true;
    }
    return false;
  }

  std::optional<uint32_t> window_loop_cpu() const {
    const std::vector<uint32_t> order = preferred(0);
    if (order.empty()) return std::nullopt;
    return order.front();
  }

 private:
  // The gpu-worker's threads have the first CPUs of the machine.
  bool beside_the_device(uint32_t index) const { return !per_node_ || *node(index) == nodes_.front(); }

  bool told_threads() const { return settings_.cpu_experts_threads() != 0; }

  std::vector<uint32_t> preferred(uint32_t index) const {
    return per_node_ ? topology_.preferred(*node(index)) : topology_.preferred();
  }

  // Threads wait for each other in every request, so by default all are on cores of the fast kind.
  uint32_t core_count(uint32_t index) const {
    return per_node_ ? topology_.fast_core_count(*node(index)) : topology_.fast_core_count();
  }

  // What the workers of this one's part of the machine may have: the CPUs behind the gpu-worker's, nothing on
  // the window loop's core. By default physical cores only: two siblings share the vector units that experts
  // keep busy.
  std::vector<uint32_t> expert_cpus(uint32_t index) const {
    std::vector<uint32_t> order = preferred(index);
    if (!told_threads()) order.resize(std::min<std::size_t>(order.size(), core_count(index)));
    if (!beside_the_device(index)) return order;
    const std::optional<uint32_t> window_loop = window_loop_cpu();
    order.erase(order.begin(), order.begin() + std::min<std::ptrdiff_t>(std::ssize(order), reserved_));
    for (const sys::Core& core : topology_.cores) {
      if (!window_loop || std::ranges::find(core.cpus, *window_loop) == core.cpus.end()) continue;
      std::erase_if(order,
                    [&](uint32_t cpu) { return std::ranges::find(core.cpus, cpu) != core.cpus.end(); });
    }
    return order;
  }

  // Workers that share this one's cores, itself included.
  uint32_t sharing(uint32_t index) const {
    if (!per_node_) return std::max(1U, workers_);
    const auto nodes = static_cast<uint32_t>(nodes_.size());
    return (workers_ - 1 - index % nodes) / nodes + 1;
  }

  const config::Settings& settings_;
  const sys::Topology& topology_;
  std::vector<uint32_t> nodes_;
  uint32_t workers_;
  bool per_node_;
  bool host_;
  bool siblings_;
  uint32_t reserved_;  // CPUs for the gpu-worker's own threads
  // Threads that may be busy without a pause. Of a quota a CPU's worth is left for everything else: a process
  // group that has used up its time stands still as a whole.
  uint32_t busy_max_;
};

}  // namespace

uint32_t worker_count(const config::Settings& settings, const sys::Topology& topology) {
  const auto nodes = std::clamp<std::size_t>(topology.nodes().size(), 1, kExpertWorkersMax);
  return settings.cpu_experts_workers().number.value_or(static_cast<uint32_t>(nodes));
}

uint32_t worker_count(const config::Settings& settings) {
  const auto& number = settings.cpu_experts_workers().number;
  return number ? *number : worker_count(settings, sys::machine_topology());
}

ThreadPlan plan_threads(const config::Settings& settings, uint32_t index, const sys::Topology& topology) {
  const Planner planner(settings, topology);
  ThreadPlan plan{.threads = planner.threads(index), .cpus = {}, .node = planner.node(index), .wait = {}};
  const bool short_of_cores = planner.short_of_cores();
  const bool pinned =
      settings.cpu_experts_pin() == "on" || (settings.cpu_experts_pin() == "auto" && !short_of_cores);
  if (pinned) plan.cpus = planner.cpus(index);
  // Spinning is right only on a core that nobody else needs.
  plan.wait = {.yield = short_of_cores || !pinned, .park_after_us = park_after_us(settings)};
  return plan;
}

WindowLoopPlan plan_window_loop(const config::Settings& settings, const sys::Topology& topology) {
  const Planner planner(settings, topology);
  if (planner.short_of_cores() || worker_count(settings, topology) == 0)
    return {.cpu = {}, .wait = {.yield = true, .park_after_us = kYieldingParkUs}};
  WindowLoopPlan plan;
  if (!(settings.cpu_experts_pin() == "off")) plan.cpu = planner.window_loop_cpu();
  plan.wait = {.yield = !plan.cpu, .park_after_us = park_after_us(settings)};
  return plan;
}

std::vector<uint32_t> plan_other_threads(const config::Settings& settings, const sys::Topology& topology) {
  if (settings.device_type() == "host") return {};
  const std::optional<uint32_t> window_loop = plan_window_loop(settings, topology).cpu;
  if (!window_loop) return {};
  std::vector<uint32_t> rest = topology.preferred();
  std::erase(rest, *window_loop);
  for (uint32_t index = 0; index < worker_count(settings, topology); ++index) {
    for (const uint32_t cpu : plan_threads(settings, index, topology).cpus) std::erase(rest, cpu);
  }
  std::ranges::sort(rest);
  return rest;
}

void stay_off_expert_cpus(const config::Settings& settings) {
  const std::vector<uint32_t> cpus = plan_other_threads(settings, sys::machine_topology());
  if (cpus.empty()) return;
  const Status kept = sys::keep_this_thread_on(cpus);
  if (kept.ok()) {
    obs::info("main", "threads that do not compute stay on CPU {}", fmt::join(cpus, ","));
  } else {
    obs::warn("main", "{}; threads may get in each other's way", kept.message());
  }
}

uint32_t host_device_threads(const config::Settings& settings, const sys::Topology& topology) {
  if (settings.device_threads() != 0) return settings.device_threads();
  return topology.busy_cpus_max();
}

std::string ThreadPlan::text() const {
  return fmt::format("{} {} {}{}, {}", threads, threads == 1 ? "thread" : "threads",
                     cpus.empty() ? "not pinned" : fmt::format("on CPUs {}", fmt::join(cpus, ",")),
                     node ? fmt::format(" of NUMA node {}", *node) : "", waiting(wait));
}

std::string WindowLoopPlan::text() const {
  return fmt::format("{}, {}", cpu ? fmt::format("on CPU {}", *cpu) : "not pinned", waiting(wait));
}

uint32_t worker_index(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos) return 0;
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(name.data() + dash + 1, name.data() + name.size(), index);
  return error == std::errc() && end == name.data() + name.size() ? index : 0;
}

}  // namespace strata::expert
