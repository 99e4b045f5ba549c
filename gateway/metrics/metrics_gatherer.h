#pragma once
// Asks every process of the cluster for its metrics, again and again, so that a scrape of /metrics only reads
// what is there and never waits for anybody.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/metrics/cluster_metrics.h"
#include "services/actor/actor.h"
#include "services/base/status.h"
#include "services/obs/metrics.h"

namespace strata::gateway {

struct ProcessMetrics {
  uint64_t instance_id = 0;
  MetricFamilies families;
};

// The other processes; the real one is grpc_processes.h. Calls back on a thread of its own, never before it
// returns.
class ProcessClient {
 public:
  virtual ~ProcessClient() = default;
  virtual void get_metrics(const std::string& process, std::function<void(Result<ProcessMetrics>)> done) = 0;
  // How the instance before the present one ended, in the supervisor's words ("signal 9 (Killed)"); empty:
  // nobody knows.
  virtual void get_last_exit(const std::string& process, std::function<void(std::string)> done) = 0;
};

struct ClusterProcess {
  std::string name;    // "cpu-expert-worker-0"
  std::string worker;  // its label: "cpu0"
};
// All processes but the gateway.
std::vector<ClusterProcess> cluster_processes(uint32_t expert_workers);

class MetricsGatherer : public actor::Actor {
 public:
  struct Round {};
  struct Answered {
    std::size_t process = 0;
    Result<ProcessMetrics> metrics;
  };
  struct ExitKnown {
    std::size_t process = 0;
    std::string how;
  };

  // publish: gets the merged metrics after each round, in this mailbox. client and metrics must outlive the
  // gatherer.
  MetricsGatherer(std::shared_ptr<actor::Executor> executor, std::vector<ClusterProcess> processes,
                  ProcessClient& client, obs::Metrics& metrics,
                  std::function<void(std::shared_ptr<const MetricFamilies>)> publish);

  void on(Round);
  void on(Answered answered);
  void on(ExitKnown exit);

 private:
  struct Watched {
    ClusterProcess process;
    prometheus::Gauge* up = nullptr;
    prometheus::Gauge* heartbeat_age = nullptr;
    std::map<std::string, prometheus::Counter*> restarts;  // by cause
    actor::Clock::time_point last_answer;
    bool asked = false;  // an answer is outstanding
  };

  std::vector<Watched> watched_;
  ProcessClient* client_;
  std::function<void(std::shared_ptr<const MetricFamilies>)> publish_;
  ClusterMetrics cluster_;
};

}  // namespace strata::gateway
