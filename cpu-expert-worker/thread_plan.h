#pragma once
// How many threads an expert worker runs, where they are pinned and how they wait: from the settings and the
// machine.

#include <cstdint>
#include <string>
#include <vector>

#include "services/config/settings.h"
#include "services/shm/doorbell.h"

namespace strata::cpu_expert_worker {

struct ThreadPlan {
  uint32_t threads = 1;
  std::vector<uint32_t> cpus;  // thread i's; empty: not pinned
  shm::WaitPolicy wait;
  std::string text() const;  // "4 threads on CPUs 2,3,4,5, spinning"
};

struct MachineCpus {
  std::vector<uint32_t> preferred;  // sys::cpus_by_preference()
  uint32_t cores = 1;               // sys::allowed_core_count()
};

// For worker `index` of as many as the settings say. The gpu-worker keeps the first CPUs for its own threads;
// the workers share those behind in slices, so that neighbours (which share a NUMA node) work for the same
// process. Where all threads together are more than the CPUs, cores are short: then nobody is pinned (unless
// told to) and everybody yields.
ThreadPlan plan_threads(const config::Settings& settings, uint32_t index, const MachineCpus& machine);

// "cpu-expert-worker-3" is 3; any other name is 0.
uint32_t worker_index(const std::string& name);

}  // namespace strata::cpu_expert_worker
