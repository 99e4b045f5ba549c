#include "cpu-expert-worker/thread_plan.h"

#include <algorithm>
#include <charconv>

#include "services/base/limits.h"

namespace strata::cpu_expert_worker {
namespace {

// Threads of the gpu-worker that want a core while experts are computed: the host device's, or the window
// loop alone.
uint32_t gpu_worker_threads(const config::Settings& settings, uint32_t cpus) {
  if (settings.device_type() != "host") return 1;
  return settings.device_threads() != 0 ? settings.device_threads() : cpus;
}

// On the host device hits and misses are computed at the same time, so the workers take half of the cores;
// beside a GPU all but the window loop's. Never SMT siblings: two of them share the vector units that experts
// keep busy.
uint32_t automatic_threads(const config::Settings& settings, uint32_t workers, uint32_t cores) {
  const uint32_t for_experts = settings.device_type() == "host" ? cores / 2 : cores - std::min(cores, 1U);
  return std::clamp(for_experts / workers, 1U, kExpertThreadsMax);
}

}  // namespace

ThreadPlan plan_threads(const config::Settings& settings, uint32_t index, const MachineCpus& machine) {
  const auto cpus = static_cast<uint32_t>(machine.preferred.size());
  const uint32_t workers = std::max(1U, settings.cpu_experts_workers());
  ThreadPlan plan;
  plan.threads = settings.cpu_experts_threads();
  if (plan.threads == 0) plan.threads = automatic_threads(settings, workers, machine.cores);

  const uint32_t reserved = gpu_worker_threads(settings, cpus);
  const bool short_of_cores = reserved + workers * plan.threads > cpus;
  const bool pinned =
      settings.cpu_experts_pin() == "on" || (settings.cpu_experts_pin() == "auto" && !short_of_cores);
  for (uint32_t thread = 0; pinned && thread < plan.threads; ++thread) {
    plan.cpus.push_back(machine.preferred[(reserved + index * plan.threads + thread) % cpus]);
  }
  // Spinning is right only on a core that nobody else needs.
  plan.wait = {.yield = short_of_cores || !pinned, .park_after_us = settings.cpu_experts_park_after_us()};
  return plan;
}

std::string ThreadPlan::text() const {
  return fmt::format("{} {} {}, {}", threads, threads == 1 ? "thread" : "threads",
                     cpus.empty() ? "not pinned" : fmt::format("on CPUs {}", fmt::join(cpus, ",")),
                     wait.yield ? "yielding" : "spinning");
}

uint32_t worker_index(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string::npos) return 0;
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(name.data() + dash + 1, name.data() + name.size(), index);
  return error == std::errc() && end == name.data() + name.size() ? index : 0;
}

}  // namespace strata::cpu_expert_worker
