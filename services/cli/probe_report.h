#pragma once
// What `strata probe` found out: a table for people, JSON for programs, a drawing of every request.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "services/cli/probe_patterns.h"

namespace strata::cli {

// The same agent loop on two clusters, one with other settings: the median time to first token of a step.
struct ProbePair {
  double step_s = 0;     // settings as configured
  double against_s = 0;  // with those of --against
  double ratio() const { return step_s / against_s; }
};

struct ProbeReport {
  std::string model;
  ProbePlan plan;
  std::vector<ProbeResult> results;
  std::vector<std::pair<std::string, std::string>> left_out;  // pattern, why
  std::vector<ProbePair> pairs;                               // of `loop`
  std::vector<std::string> against;  // PATH=VALUE, in the second cluster of each pair
};

// Of at least one value; of an even number the mean of the middle two.
double median(std::vector<double> values);

// What the settings cost a step: the median of the pairs' ratios, minus one. There are pairs.
double probe_tax(const ProbeReport& report);

// A greedy answer was another one after a switch.
bool probe_found_wrong(const ProbeReport& report);

std::string probe_text(const ProbeReport& report);
std::string probe_json(const ProbeReport& report);
// A row per pattern and series, a dot per request over a logarithmic axis of seconds, a line at the median.
std::string probe_svg(const ProbeReport& report);

}  // namespace strata::cli
