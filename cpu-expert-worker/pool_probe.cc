#include "cpu-expert-worker/pool_probe.h"

#include <chrono>
#include <string>
#include <utility>

namespace strata::cpu_expert_worker {
namespace {

constexpr std::chrono::milliseconds kUpdateEvery{100};

}  // namespace

PoolProbe::PoolProbe(std::shared_ptr<actor::Executor> executor, obs::Metrics& metrics,
                     const PoolCounters& counters)
    : Actor(std::move(executor)) {
  followers_.follow(
      metrics.counter(
          "strata_cpu_pool_busy_seconds_total",
          "Time with a request on the board; near 1 per second: the CPU is what decoding waits for."),
      counters.busy_ns, 1e-9);
  followers_.follow(
      metrics.counter("strata_cpu_pool_jobs_total", "Experts computed, each with all of its tokens."),
      counters.experts);
  followers_.follow(
      metrics.counter("strata_cpu_pool_bytes_read_total",
                      "Expert weights read; compare its rate with the machine's memory bandwidth."),
      counters.weight_bytes);
  for (std::size_t i = 0; i < counters.threads.size(); ++i) {
    followers_.follow(metrics.counter("strata_cpu_pool_thread_busy_seconds_total",
                                      "Time that a thread computes; one that is far from the others has a "
                                      "slow core, or one that it does not have for itself.",
                                      {{"thread", std::to_string(i)}}),
                      counters.threads[i].busy_ns, 1e-9);
  }
}

void PoolProbe::on(Update) {
  followers_.carry();
  const auto self = std::static_pointer_cast<PoolProbe>(shared_from_this());
  actor::tell_after(self, kUpdateEvery, Update{});
}

}  // namespace strata::cpu_expert_worker
