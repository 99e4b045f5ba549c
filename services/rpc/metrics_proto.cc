#include <limits>

#include "services/rpc/server.h"

namespace strata::rpc {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

v1::MetricType to_proto(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return v1::METRIC_TYPE_COUNTER;
    case MetricType::Gauge:
      return v1::METRIC_TYPE_GAUGE;
    case MetricType::Histogram:
      return v1::METRIC_TYPE_HISTOGRAM;
    default:
      return v1::METRIC_TYPE_UNSPECIFIED;
  }
}

MetricType from_proto(v1::MetricType type) {
  switch (type) {
    case v1::METRIC_TYPE_COUNTER:
      return MetricType::Counter;
    case v1::METRIC_TYPE_GAUGE:
      return MetricType::Gauge;
    case v1::METRIC_TYPE_HISTOGRAM:
      return MetricType::Histogram;
    default:
      return MetricType::Untyped;
  }
}

void to_proto(const ClientMetric& metric, MetricType type, v1::MetricSample& out) {
  for (const auto& label : metric.label) {
    auto* wire = out.add_labels();
    wire->set_name(label.name);
    wire->set_value(label.value);
  }
  if (type == MetricType::Counter) out.set_value(metric.counter.value);
  if (type == MetricType::Gauge) out.set_value(metric.gauge.value);
  if (type == MetricType::Histogram) {
    for (const auto& bucket : metric.histogram.bucket) {
      if (bucket.upper_bound == std::numeric_limits<double>::infinity()) continue;
      out.add_bounds(bucket.upper_bound);
      out.add_bucket_counts(bucket.cumulative_count);
    }
    out.set_count(metric.histogram.sample_count);
    out.set_sum(metric.histogram.sample_sum);
  }
}

ClientMetric from_proto(const v1::MetricSample& sample, MetricType type) {
  ClientMetric metric;
  for (const auto& label : sample.labels()) metric.label.push_back({label.name(), label.value()});
  if (type == MetricType::Counter) metric.counter.value = sample.value();
  if (type == MetricType::Gauge) metric.gauge.value = sample.value();
  if (type == MetricType::Histogram) {
    int buckets = std::min(sample.bounds_size(), sample.bucket_counts_size());
    for (int i = 0; i < buckets; ++i)
      metric.histogram.bucket.push_back({sample.bucket_counts(i), sample.bounds(i)});
    metric.histogram.bucket.push_back({sample.count(), std::numeric_limits<double>::infinity()});
    metric.histogram.sample_count = sample.count();
    metric.histogram.sample_sum = sample.sum();
  }
  return metric;
}

}  // namespace

void to_proto(const std::vector<prometheus::MetricFamily>& families, v1::GetMetricsResponse& out) {
  for (const auto& family : families) {
    auto* wire = out.add_families();
    wire->set_name(family.name);
    wire->set_help(family.help);
    wire->set_type(to_proto(family.type));
    for (const auto& metric : family.metric) to_proto(metric, family.type, *wire->add_samples());
  }
}

std::vector<prometheus::MetricFamily> from_proto(const v1::GetMetricsResponse& response) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& wire : response.families()) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = wire.name();
    family.help = wire.help();
    family.type = from_proto(wire.type());
    for (const auto& sample : wire.samples()) family.metric.push_back(from_proto(sample, family.type));
  }
  return families;
}

}  // namespace strata::rpc
