#include "gateway/metrics/metrics_gatherer.h"

#include <fmt/format.h>

#include <utility>

namespace strata::gateway {

namespace {

constexpr std::chrono::milliseconds kRoundInterval{250};

// "signal 9 (Killed)" -> "signal"
std::string exit_cause(const std::string& how) {
  if (how.starts_with("signal")) return "signal";
  if (how.starts_with("exit")) return "exit";
  return "unknown";
}

}  // namespace

std::vector<ClusterProcess> cluster_processes(uint32_t expert_workers) {
  std::vector<ClusterProcess> processes{{.name = "gpu-worker", .worker = "gpu0"},
                                        {.name = "cache-manager", .worker = "cache"}};
  for (uint32_t i = 0; i < expert_workers; ++i) {
    processes.push_back({.name = fmt::format("cpu-expert-worker-{}", i), .worker = fmt::format("cpu{}", i)});
  }
  return processes;
}

MetricsGatherer::MetricsGatherer(std::shared_ptr<actor::Executor> executor,
                                 std::vector<ClusterProcess> processes, ProcessClient& client,
                                 obs::Metrics& metrics,
                                 std::function<void(std::shared_ptr<const MetricFamilies>)> publish)
    : Actor(std::move(executor)), client_(&client), publish_(std::move(publish)) {
  for (ClusterProcess& process : processes) {
    Watched& watched = watched_.emplace_back();
    const std::string worker = process.worker;
    watched.process = std::move(process);
    watched.up =
        &metrics.gauge("strata_worker_up", "1 while the process answers; 0 for more than 30 s needs a look.",
                       {{"worker", worker}});
    watched.heartbeat_age = &metrics.gauge("strata_worker_heartbeat_age_seconds",
                                           "Since the process last answered.", {{"worker", worker}});
    for (const char* cause : {"exit", "signal", "unknown"}) {
      watched.restarts[cause] =
          &metrics.counter("strata_worker_restarts_total", "Restarts by how the instance before ended.",
                           {{"worker", worker}, {"cause", cause}});
    }
    watched.last_answer = this->executor().now();
  }
}

void MetricsGatherer::on(Round) {
  std::weak_ptr<MetricsGatherer> weak = std::static_pointer_cast<MetricsGatherer>(shared_from_this());
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    Watched& watched = watched_[i];
    watched.heartbeat_age->Set(std::chrono::duration<double>(executor().now() - watched.last_answer).count());
    if (std::exchange(watched.asked, true)) continue;
    client_->get_metrics(watched.process.name, [weak, i](Result<ProcessMetrics> metrics) {
      if (auto self = weak.lock()) tell(self, Answered{.process = i, .metrics = std::move(metrics)});
    });
  }
  publish_(std::make_shared<const MetricFamilies>(cluster_.merged()));
  tell_after(weak.lock(), kRoundInterval, Round{});
}

void MetricsGatherer::on(Answered answered) {
  Watched& watched = watched_[answered.process];
  watched.asked = false;
  watched.up->Set(answered.metrics ? 1 : 0);
  if (!answered.metrics) return;
  watched.last_answer = executor().now();
  watched.heartbeat_age->Set(0);
  if (!cluster_.update(watched.process.worker, answered.metrics->instance_id, answered.metrics->families))
    return;
  std::weak_ptr<MetricsGatherer> weak = std::static_pointer_cast<MetricsGatherer>(shared_from_this());
  client_->get_last_exit(watched.process.name, [weak, process = answered.process](std::string how) {
    if (auto self = weak.lock()) tell(self, ExitKnown{.process = process, .how = std::move(how)});
  });
}

void MetricsGatherer::on(ExitKnown exit) {
  watched_[exit.process].restarts.at(exit_cause(exit.how))->Increment();
}

}  // namespace strata::gateway
