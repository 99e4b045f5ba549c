#pragma once
// The metrics of one process: a prometheus-cpp registry with the project's rules on top (spec: metrics). A
// metric lives in the
// `*_probe.h` of what it measures and is made at start-up with all its label values, so that none appears or
// vanishes later.

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata::obs {

using Labels = std::map<std::string, std::string>;

class Metrics {
 public:
  // common: labels on every metric of the process, e.g. {{"worker", "gpu0"}}.
  explicit Metrics(Labels common);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Asking again for the same name and labels gives the same object. Thread-safe; the references live as long
  // as Metrics.
  prometheus::Counter& counter(const std::string& name, const std::string& help, const Labels& labels = {});
  prometheus::Gauge& gauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // Latency histogram with the bucket edges of the specification.
  prometheus::Histogram& latency(const std::string& name, const std::string& help, const Labels& labels = {});
  prometheus::Histogram& histogram(const std::string& name, const std::string& help,
                                   const std::vector<double>& bounds, const Labels& labels = {});

  std::vector<prometheus::MetricFamily> collect() const;
  static std::string to_text(const std::vector<prometheus::MetricFamily>& families);

 private:
  Labels common_;
  std::shared_ptr<prometheus::Registry> registry_;
};

}  // namespace strata::obs
