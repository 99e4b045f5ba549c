#include "services/expert/thread_plan.h"

#include <algorithm>
#include <charconv>

#include "services/base/limits.h"

namespace strata::expert {
namespace {

// Where cores are short, the window loop sleeps soon: the workers' threads need its core.
constexpr uint32_t kYieldingParkUs = 200;

class Planner {
 public:
  Planner(const config::Settings& settings, const sys::Topology& topology)
      : settings_(settings),
        topology_(topology),
        nodes_(topology.nodes()),
        workers_(worker_count(settings, topology)),
        per_node_(nodes_.size() > 1 && workers_ >= nodes_.size()),
        host_(settings.device_type() == "host"),
        reserved_(host_ ? host_device_threads(settings, topology) : 1) {}

  std::optional<uint32_t> node(uint32_t index) const {
    if (!per_node_) return std::nullopt;
    return nodes_[index % nodes_.size()];
  }

  uint32_t threads(uint32_t index) const {
    if (settings_.cpu_experts_threads() != 0) return settings_.cpu_experts_threads();
    // On the host device hits and misses are computed at the same time, so the workers take half of the
    // cores; beside a GPU all but the window loop's. Never SMT siblings: two of them share the vector units
    // that experts keep busy.
    const auto for_experts = [&](uint32_t cores, bool with_window_loop) {
      if (host_) return cores / 2;
      return with_window_loop ? cores - std::min(cores, 1U) : cores;
    };
    const uint32_t cores =
        per_node_ ? topology_.core_count(*node(index)) : static_cast<uint32_t>(topology_.cores.size());
    const uint32_t by_cores = for_experts(cores, beside_the_device(index)) / sharing(index);
    const uint32_t by_quota = for_experts(topology_.busy_cpus_max(), true) / std::max(1U, workers_);
    return std::clamp(std::min(by_cores, by_quota), 1U, kExpertThreadsMax);
  }

  // CPU of each thread.
  std::vector<uint32_t> cpus(uint32_t index) const {
    const std::vector<uint32_t> order = per_node_ ? topology_.preferred(*node(index)) : topology_.preferred();
    const uint32_t before = per_node_ ? index / static_cast<uint32_t>(nodes_.size()) : index;
    const std::size_t first =
        (beside_the_device(index) ? reserved_ : 0) + std::size_t{before} * threads(index);
    std::vector<uint32_t> cpus;
    for (uint32_t thread = 0; thread < threads(index) && !order.empty(); ++thread)
      cpus.push_back(order[(first + thread) % order.size()]);
    return cpus;
  }

  bool short_of_cores() const {
    uint64_t all = reserved_;
    for (uint32_t index = 0; index < workers_; ++index) all += threads(index);
    if (all > topology_.busy_cpus_max()) return true;
    for (const uint32_t node : per_node_ ? nodes_ : std::vector<uint32_t>{}) {
      uint64_t here = node == nodes_.front() ? reserved_ : 0;
      for (uint32_t index = 0; index < workers_; ++index) {
        if (*this->node(index) == node) here += threads(index);
      }
      if (here > topology_.preferred(node).size()) return true;
    }
    return false;
  }

 private:
  // The gpu-worker's threads have the first CPUs of the machine.
  bool beside_the_device(uint32_t index) const { return !per_node_ || *node(index) == nodes_.front(); }

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
  uint32_t reserved_;  // CPUs for the gpu-worker's own threads
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
  plan.wait = {.yield = short_of_cores || !pinned, .park_after_us = settings.cpu_experts_park_after_us()};
  return plan;
}

shm::WaitPolicy plan_device_wait(const config::Settings& settings, const sys::Topology& topology) {
  if (Planner(settings, topology).short_of_cores()) return {.yield = true, .park_after_us = kYieldingParkUs};
  return {.yield = false, .park_after_us = settings.cpu_experts_park_after_us()};
}

uint32_t host_device_threads(const config::Settings& settings, const sys::Topology& topology) {
  if (settings.device_threads() != 0) return settings.device_threads();
  return topology.busy_cpus_max();
}

std::string ThreadPlan::text() const {
  return fmt::format("{} {} {}{}, {}", threads, threads == 1 ? "thread" : "threads",
                     cpus.empty() ? "not pinned" : fmt::format("on CPUs {}", fmt::join(cpus, ",")),
                     node ? fmt::format(" of NUMA node {}", *node) : "",
                     wait.yield ? "yielding" : "spinning");
}

uint32_t worker_index(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos) return 0;
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(name.data() + dash + 1, name.data() + name.size(), index);
  return error == std::errc() && end == name.data() + name.size() ? index : 0;
}

}  // namespace strata::expert
