#include "services/obs/metrics.h"

#include <prometheus/text_serializer.h>

#include "services/base/check.h"

namespace strata::obs {

namespace {

// vLLM's edges, so that panels compare (spec: metrics).
const std::vector<double> kLatencyBounds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                            1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};

}  // namespace

Metrics::Metrics(Labels common)
    : common_(std::move(common)), registry_(std::make_shared<prometheus::Registry>()) {}

prometheus::Counter& Metrics::counter(const std::string& name, const std::string& help,
                                      const Labels& labels) {
  CHECK(name.ends_with("_total"), "counter {} must end in _total", name);
  return prometheus::BuildCounter().Name(name).Help(help).Labels(common_).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::gauge(const std::string& name, const std::string& help, const Labels& labels) {
  CHECK(!name.ends_with("_total"), "gauge {} must not end in _total", name);
  return prometheus::BuildGauge().Name(name).Help(help).Labels(common_).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::latency(const std::string& name, const std::string& help,
                                        const Labels& labels) {
  return histogram(name, help, kLatencyBounds, labels);
}

prometheus::Histogram& Metrics::histogram(const std::string& name, const std::string& help,
                                          const std::vector<double>& bounds, const Labels& labels) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Labels(common_)
      .Register(*registry_)
      .Add(labels, bounds);
}

std::vector<prometheus::MetricFamily> Metrics::collect() const { return registry_->Collect(); }

std::string Metrics::to_text(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace strata::obs
