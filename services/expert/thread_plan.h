#pragma once
// How many expert workers there are, how many threads each runs, where they are pinned and how they wait:
// from the settings and the machine. Every process of a cluster comes to the same result.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/config/settings.h"
#include "services/shm/doorbell.h"
#include "services/sys/topology.h"

namespace strata::expert {

struct ThreadPlan {
  uint32_t threads = 1;
  std::vector<uint32_t> cpus;    // thread i's; empty: not pinned
  std::optional<uint32_t> node;  // the NUMA node that all of it lies on, where there are several
  shm::WaitPolicy wait;
  std::string text() const;  // "4 threads on CPUs 2,3,4,5, spinning"
};

// cpu_experts.workers; auto: one per NUMA node with cores of this process.
uint32_t worker_count(const config::Settings& settings, const sys::Topology& topology);
uint32_t worker_count(const config::Settings& settings);  // looks at the machine only if it has to

// For worker `index`. With at least as many workers as NUMA nodes, each belongs to a node, in turn; else
// all share the whole machine. The gpu-worker keeps the first CPUs for its threads (beside a GPU one, for the
// window loop and the gateway); the workers share those behind in slices, so that neighbours work for the
// same process. By itself a worker runs a thread per physical core, slow ones included (they take less of the
// work, because units are taken one after another), and no more threads than the CPU quota pays for. Where
// all threads together are more than the CPUs that can be busy, cores are short: then nobody is pinned
// (unless told to) and everybody yields.
ThreadPlan plan_threads(const config::Settings& settings, uint32_t index, const sys::Topology& topology);

// How the gpu-worker's window loop waits for the workers: by the same rule.
shm::WaitPolicy plan_device_wait(const config::Settings& settings, const sys::Topology& topology);

// Threads of the host device: device.threads, or as many CPUs as can be busy.
uint32_t host_device_threads(const config::Settings& settings, const sys::Topology& topology);

// "cpu-expert-worker-3" is 3; any other name is 0.
uint32_t worker_index(const std::string& name);

}  // namespace strata::expert
