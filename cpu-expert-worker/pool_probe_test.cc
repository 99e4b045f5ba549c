#include "cpu-expert-worker/pool_probe.h"

#include <gtest/gtest.h>

#include "services/actor/actor_system.h"

namespace strata::cpu_expert_worker {
namespace {

TEST(PoolProbeTest, ShowsWhatTheThreadsCount) {
  actor::VirtualWorld world;
  obs::Metrics metrics(obs::Labels{{"worker", "cpu0"}});
  PoolCounters counters(2);
  auto probe = std::make_shared<PoolProbe>(world.make_executor(), metrics, counters);
  const std::string before = obs::Metrics::to_text(metrics.collect());
  EXPECT_NE(before.find("strata_cpu_pool_thread_busy_seconds_total{worker=\"cpu0\",thread=\"1\"} 0"),
            std::string::npos)
      << "there from the start: " << before;
  counters.threads[1].busy_ns = 1'500'000'000;
  counters.busy_ns = 2'000'000'000;
  counters.experts = 7;
  counters.weight_bytes = 1 << 20;
  actor::tell(probe, PoolProbe::Update{});
  world.advance(std::chrono::seconds(1));
  EXPECT_EQ(metrics.counter("strata_cpu_pool_thread_busy_seconds_total", "", {{"thread", "0"}}).Value(), 0);
  EXPECT_DOUBLE_EQ(
      metrics.counter("strata_cpu_pool_thread_busy_seconds_total", "", {{"thread", "1"}}).Value(), 1.5);
  EXPECT_DOUBLE_EQ(metrics.counter("strata_cpu_pool_busy_seconds_total", "").Value(), 2);
  EXPECT_EQ(metrics.counter("strata_cpu_pool_jobs_total", "").Value(), 7);
  EXPECT_EQ(metrics.counter("strata_cpu_pool_bytes_read_total", "").Value(), 1 << 20);
}

}  // namespace
}  // namespace strata::cpu_expert_worker
