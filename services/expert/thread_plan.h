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
// same process. By itself a worker runs a thread per physical core of the fast kind, and no more threads than
// the CPU quota pays for beside everything else; slow cores and SMT siblings are used only when
// cpu_experts.threads asks for so many, the siblings of the window loop's core never. Where that does not
// suffice for all threads, cores are short: then nobody is pinned (unless told to) and everybody yields.
ThreadPlan plan_threads(const config::Settings& settings, uint32_t index, const sys::Topology& topology);

// The gpu-worker's window loop, which waits for the workers: by the same rule. It spins only on a CPU that it
// is pinned to.
struct WindowLoopPlan {
  std::optional<uint32_t> cpu;  // none: not pinned
  shm::WaitPolicy wait;
  std::string text() const;  // "on CPU 0, spinning"
};
WindowLoopPlan plan_window_loop(const config::Settings& settings, const sys::Topology& topology);

// CPUs for everything else that runs beside a GPU: the gateway, the cache manager, threads of gRPC. A thread
// of theirs that takes an expert thread's CPU for 50 us makes a whole layer wait so long, and where nearly
// all CPUs are busy the scheduler does not look far for a free one. Empty: anywhere (the host device; nobody
// is pinned; no CPU is left).
std::vector<uint32_t> plan_other_threads(const config::Settings& settings, const sys::Topology& topology);

// Keeps the calling thread and those that it starts from now on there.
void stay_off_expert_cpus(const config::Settings& settings);

// Threads of the host device: device.threads, or as many CPUs as can be busy. By default it does not leave
// the workers' cores free: what is not experts runs when they have nothing to do, and is most of the work.
uint32_t host_device_threads(const config::Settings& settings, const sys::Topology& topology);

// "cpu-expert-worker-3" is 3; any other name is 0.
uint32_t worker_index(const std::string& name);

}  // namespace strata::expert
