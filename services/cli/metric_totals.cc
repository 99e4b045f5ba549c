#include "services/cli/metric_totals.h"

namespace strata::cli {

MetricTotals::MetricTotals(const v1::GetMetricsResponse& metrics) {
  for (const auto& family : metrics.families()) {
    for (const auto& sample : family.samples()) {
      Labels labels;
      for (const auto& label : sample.labels()) labels[label.name()] = label.value();
      values_[{family.name(), std::move(labels)}] = sample.value();
    }
  }
}

double MetricTotals::sum(const std::string& name) const {
  double all = 0;
  for (const auto& [key, value] : values_)
    if (key.first == name) all += value;
  return all;
}

std::map<std::string, double> MetricTotals::by(const std::string& name, const std::string& label) const {
  std::map<std::string, double> sums;
  for (const auto& [key, value] : values_) {
    const auto found = key.second.find(label);
    if (key.first == name && found != key.second.end()) sums[found->second] += value;
  }
  return sums;
}

MetricTotals MetricTotals::since(const MetricTotals& before) const {
  MetricTotals grown = *this;
  for (auto& [key, value] : grown.values_) {
    const auto found = before.values_.find(key);
    if (found != before.values_.end()) value -= found->second;
  }
  return grown;
}

}  // namespace strata::cli
