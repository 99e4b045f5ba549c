#include "services/sys/cpus.h"

#include <pthread.h>
#include <sched.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>

#include "services/base/check.h"
#include "services/sys/errno_status.h"

namespace strata::sys {
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

Status pin_this_thread(uint32_t cpu) { return keep_this_thread_on({&cpu, 1}); }

Status keep_this_thread_on(std::span<const uint32_t> cpus) {
  CHECK(!cpus.empty());
  const std::size_t cpus_max = std::max<std::size_t>(1024, std::ranges::max(cpus) + 1);
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus_max),
                                                       [](cpu_set_t* s) { CPU_FREE(s); });
  const std::size_t set_bytes = CPU_ALLOC_SIZE(cpus_max);
  CPU_ZERO_S(set_bytes, set.get());
  for (const uint32_t cpu : cpus) CPU_SET_S(cpu, set_bytes, set.get());
  const int error = pthread_setaffinity_np(pthread_self(), set_bytes, set.get());
  if (error != 0)
    return fail(errno_code(error), "cannot pin a thread to CPU {}: {}", fmt::join(cpus, ","),
                std::strerror(error));
  return {};
}

void name_this_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace strata::sys
