#include "gateway/metrics/cluster_metrics.h"

#include <algorithm>

namespace strata::gateway {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

bool is_ours(std::string_view name) { return name.starts_with("strata_") || name.starts_with("process_"); }

std::string labels_key(const ClientMetric& metric) {
  std::string key;
  for (const auto& label : metric.label) key += label.name + '\0' + label.value + '\0';
  return key;
}

void add_worker_label(ClientMetric& metric, const std::string& worker) {
  if (std::ranges::find(metric.label, "worker", &ClientMetric::Label::name) != metric.label.end()) return;
  metric.label.push_back({.name = "worker", .value = worker});
}

bool accumulates(MetricType type) { return type == MetricType::Counter || type == MetricType::Histogram; }

// sum += other, for what counts up.
void add(ClientMetric& sum, const ClientMetric& other) {
  sum.counter.value += other.counter.value;
  const auto& more = other.histogram.bucket;
  auto& buckets = sum.histogram.bucket;
  if (more.empty()) return;
  // Nothing before, or a build with other bounds: nothing that could be added up.
  if (!std::ranges::equal(buckets, more, {}, &ClientMetric::Bucket::upper_bound,
                          &ClientMetric::Bucket::upper_bound)) {
    sum.histogram = other.histogram;
    return;
  }
  sum.histogram.sample_count += other.histogram.sample_count;
  sum.histogram.sample_sum += other.histogram.sample_sum;
  for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i].cumulative_count += more[i].cumulative_count;
}

}  // namespace

bool ClusterMetrics::update(const std::string& worker, uint64_t instance_id, const MetricFamilies& families) {
  auto [found, first] = processes_.try_emplace(worker);
  Process& process = found->second;
  const bool restarted = !first && process.instance_id != instance_id;
  process.instance_id = instance_id;
  if (restarted) {
    for (auto& [name, family] : process.families) {
      for (auto& [key, series] : family.series) {
        if (accumulates(family.type)) add(series.earlier, series.current);
        ClientMetric cleared;
        cleared.label = std::move(series.current.label);
        series.current = std::move(cleared);
      }
    }
  }
  for (const auto& given : families) {
    if (!is_ours(given.name)) continue;
    Family& family = process.families[given.name];
    family.help = given.help;
    family.type = given.type;
    for (ClientMetric metric : given.metric) {
      add_worker_label(metric, worker);
      const std::string key = labels_key(metric);
      family.series[key].current = std::move(metric);
    }
  }
  return restarted;
}

MetricFamilies ClusterMetrics::merged() const {
  std::vector<MetricFamilies> lists;
  for (const auto& [worker, process] : processes_) {
    MetricFamilies& list = lists.emplace_back();
    for (const auto& [name, family] : process.families) {
      prometheus::MetricFamily out{.name = name, .help = family.help, .type = family.type, .metric = {}};
      for (const auto& [key, series] : family.series) {
        ClientMetric metric = series.current;
        if (accumulates(family.type)) {
          metric = series.earlier;
          metric.label = series.current.label;
          add(metric, series.current);
        }
        out.metric.push_back(std::move(metric));
      }
      list.push_back(std::move(out));
    }
  }
  return merge_families(std::move(lists));
}

MetricFamilies merge_families(std::vector<MetricFamilies> lists) {
  std::map<std::string, prometheus::MetricFamily> by_name;
  for (MetricFamilies& list : lists) {
    for (prometheus::MetricFamily& family : list) {
      auto [found, first] = by_name.try_emplace(family.name);
      if (first) {
        found->second = std::move(family);
      } else {
        std::ranges::move(family.metric, std::back_inserter(found->second.metric));
      }
    }
  }
  MetricFamilies out;
  for (auto& [name, family] : by_name) out.push_back(std::move(family));
  return out;
}

}  // namespace strata::gateway
