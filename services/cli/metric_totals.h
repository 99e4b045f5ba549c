#pragma once
// The metrics of one process at a moment, and what they grew by until another.

#include <map>
#include <string>

#include "strata/v1/process.pb.h"

namespace strata::cli {

class MetricTotals {
 public:
  MetricTotals() = default;
  explicit MetricTotals(const v1::GetMetricsResponse& metrics);

  // The sum over all samples of the metric; with `label`: by that label's value, samples without it left out.
  double sum(const std::string& name) const;
  std::map<std::string, double> by(const std::string& name, const std::string& label) const;

  MetricTotals since(const MetricTotals& before) const;

 private:
  using Labels = std::map<std::string, std::string>;
  std::map<std::pair<std::string, Labels>, double> values_;
};

}  // namespace strata::cli
