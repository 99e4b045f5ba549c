#include "gateway/metrics/cluster_metrics.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gateway/metrics/gateway_probe.h"
#include "gateway/metrics/metrics_gatherer.h"
#include "services/actor/actor_system.h"

namespace strata::gateway {
namespace {

// A worker's registry with one of each kind.
struct Worker {
  obs::Metrics metrics{{}};
  prometheus::Counter& uses = metrics.counter("strata_expert_uses_total", "Uses.", {{"served_by", "vram"}});
  prometheus::Gauge& slots = metrics.gauge("strata_expert_slots", "Slots.");
  prometheus::Histogram& latency = metrics.latency("strata_prefill_chunk_seconds", "Chunks.");
};

const prometheus::ClientMetric* find(const MetricFamilies& families, const std::string& name,
                                     const std::string& worker) {
  for (const auto& family : families) {
    if (family.name != name) continue;
    for (const auto& metric : family.metric) {
      for (const auto& label : metric.label) {
        if (label.name == "worker" && label.value == worker) return &metric;
      }
    }
  }
  return nullptr;
}

TEST(ClusterMetricsTest, CountersAndHistogramsCarryOnOverARestartAndGaugesDoNot) {
  ClusterMetrics cluster;
  Worker first;
  first.uses.Increment(10);
  first.slots.Set(128);
  first.latency.Observe(0.02);
  EXPECT_FALSE(cluster.update("gpu0", 1, first.metrics.collect()));
  first.uses.Increment(5);
  EXPECT_FALSE(cluster.update("gpu0", 1, first.metrics.collect()));

  Worker second;
  second.uses.Increment(2);
  second.slots.Set(64);
  second.latency.Observe(0.02);
  second.latency.Observe(3);
  EXPECT_TRUE(cluster.update("gpu0", 2, second.metrics.collect()));

  MetricFamilies merged = cluster.merged();
  EXPECT_EQ(find(merged, "strata_expert_uses_total", "gpu0")->counter.value, 17);
  EXPECT_EQ(find(merged, "strata_expert_slots", "gpu0")->gauge.value, 64);
  const auto& histogram = find(merged, "strata_prefill_chunk_seconds", "gpu0")->histogram;
  EXPECT_EQ(histogram.sample_count, 3u);
  EXPECT_EQ(histogram.bucket.back().cumulative_count, 3u);
}

TEST(ClusterMetricsTest, ASeriesThatTheNewInstanceDoesNotKnowStays) {
  ClusterMetrics cluster;
  Worker first;
  first.latency.Observe(1);
  first.uses.Increment(3);
  cluster.update("gpu0", 1, first.metrics.collect());
  cluster.update("gpu0", 2, {});
  EXPECT_EQ(find(cluster.merged(), "strata_expert_uses_total", "gpu0")->counter.value, 3);
  EXPECT_EQ(find(cluster.merged(), "strata_prefill_chunk_seconds", "gpu0")
                ->histogram.bucket.back()
                .cumulative_count,
            1u);
}

TEST(ClusterMetricsTest, PutsFamiliesOfSeveralProcessesTogetherUnderTheWorkerLabel) {
  ClusterMetrics cluster;
  Worker one, two;
  one.uses.Increment(1);
  two.uses.Increment(2);
  obs::Metrics foreign({});
  foreign.counter("exposer_scrapes_total", "Not ours.");
  cluster.update("cpu0", 1, one.metrics.collect());
  cluster.update("cpu1", 2, two.metrics.collect());
  cluster.update("cache", 3, foreign.collect());
  MetricFamilies merged = cluster.merged();
  EXPECT_EQ(merged.size(), 3u);
  EXPECT_EQ(find(merged, "strata_expert_uses_total", "cpu0")->counter.value, 1);
  EXPECT_EQ(find(merged, "strata_expert_uses_total", "cpu1")->counter.value, 2);
}

class ScriptedProcesses : public ProcessClient {
 public:
  void get_metrics(const std::string& process, std::function<void(Result<ProcessMetrics>)> done) override {
    if (auto found = answers.find(process); found != answers.end()) {
      done(ProcessMetrics{.instance_id = found->second, .families = worker.metrics.collect()});
    } else {
      done(fail(Code::kUnavailable, "{} is down", process));
    }
  }
  void get_last_exit(const std::string&, std::function<void(std::string)> done) override {
    done("signal 9 (Killed)");
  }

  Worker worker;
  std::map<std::string, uint64_t> answers;  // instance ids
};

TEST(MetricsGathererTest, TellsWhoIsUpWhoIsNotAndWhoWasRestarted) {
  actor::VirtualWorld world;
  obs::Metrics own({});
  ScriptedProcesses processes;
  processes.answers = {{"gpu-worker", 1}};
  std::shared_ptr<const MetricFamilies> published;
  auto gatherer =
      std::make_shared<MetricsGatherer>(world.make_executor(), cluster_processes(1), processes, own,
                                        [&published](auto families) { published = std::move(families); });
  tell(gatherer, MetricsGatherer::Round{});
  world.advance(std::chrono::seconds(2));
  ASSERT_TRUE(published);
  EXPECT_NE(find(*published, "strata_expert_slots", "gpu0"), nullptr);
  EXPECT_EQ(find(own.collect(), "strata_worker_up", "gpu0")->gauge.value, 1);
  EXPECT_EQ(find(own.collect(), "strata_worker_up", "cpu0")->gauge.value, 0);
  EXPECT_GE(find(own.collect(), "strata_worker_heartbeat_age_seconds", "cpu0")->gauge.value, 1.5);

  processes.answers["gpu-worker"] = 2;
  world.advance(std::chrono::seconds(1));
  double restarts = 0;
  for (const auto& family : own.collect()) {
    if (family.name != "strata_worker_restarts_total") continue;
    for (const auto& metric : family.metric) restarts += metric.counter.value;
  }
  EXPECT_EQ(restarts, 1);
}

TEST(ClusterMetricsTest, TheTextPassesPromtool) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  obs::Metrics own({});
  GatewayProbe probe(own);
  probe.request_seconds.Observe(0.3);
  Worker worker;
  ClusterMetrics cluster;
  cluster.update("gpu0", 1, worker.metrics.collect());
  ScriptedProcesses processes;
  MetricsGatherer gatherer(actor::VirtualWorld().make_executor(), cluster_processes(2), processes, own,
                           [](auto) {});
  std::string path = (std::filesystem::temp_directory_path() / "strata-promtool-XXXXXX").string();
  ASSERT_GE(mkstemp(path.data()), 0);
  std::ofstream(path) << obs::Metrics::to_text(merge_families({own.collect(), cluster.merged()}));
  int status = std::system(("promtool check metrics < " + path + " >&2").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace strata::gateway
