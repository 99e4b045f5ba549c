#pragma once
// The metrics of all processes as one list. Counters and histograms of a process that was restarted carry on
// where they were: what the earlier instances had counted is kept here (rule: counters survive a worker's
// restart). Pure.

#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata::gateway {

using MetricFamilies = std::vector<prometheus::MetricFamily>;

class ClusterMetrics {
 public:
  // What a process said. worker: its short name, added as a label where the process has not done so. Returns
  // true when the process is another instance than last time.
  bool update(const std::string& worker, uint64_t instance_id, const MetricFamilies& families);

  // All processes, one family per name. What a dead process said last stays.
  MetricFamilies merged() const;

 private:
  struct Series {
    prometheus::ClientMetric earlier;  // sum over the earlier instances
    prometheus::ClientMetric current;
  };
  struct Family {
    std::string help;
    prometheus::MetricType type = prometheus::MetricType::Untyped;
    std::map<std::string, Series> series;  // by labels
  };
  struct Process {
    uint64_t instance_id = 0;
    std::map<std::string, Family> families;  // by name
  };
  std::map<std::string, Process> processes_;
};

// Puts lists together: families of the same name become one.
MetricFamilies merge_families(std::vector<MetricFamilies> lists);

}  // namespace strata::gateway
