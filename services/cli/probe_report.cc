#include "services/cli/probe_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "services/base/build_info.h"
#include "services/base/check.h"

namespace strata::cli {

namespace json = boost::json;

namespace {

template <class Value>
std::vector<double> values_of(const ProbeSeries& series, Value ProbeSample::* member) {
  std::vector<double> values;
  for (const ProbeSample& sample : series.samples) values.push_back(static_cast<double>(sample.*member));
  return values;
}

double median_of(const ProbeSeries& series) { return median(values_of(series, &ProbeSample::seconds)); }
double worst_of(const ProbeSeries& series) {
  return std::ranges::max(values_of(series, &ProbeSample::seconds));
}

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string result_text(const ProbeResult& result) {
  const double cold = median_of(result.series.front());
  std::string out;
  for (const ProbeSeries& series : result.series) {
    out += fmt::format(
        "{:<10} {:<10} {:>4} {:>10} {:>10} {:>9} {:>7.0f} {:>7.0f}\n",
        &series == &result.series.front() ? result.pattern : "", series.name, series.samples.size(),
        seconds_text(median_of(series)), seconds_text(worst_of(series)),
        &series == &result.series.front() ? "-" : fmt::format("{:.1f}%", 100 * median_of(series) / cold),
        median(values_of(series, &ProbeSample::prompt_tokens)),
        median(values_of(series, &ProbeSample::cached_tokens)));
  }
  return out;
}

// A cold read that found something is none, and all ratios to it are too high.
std::string warnings_text(const ProbeResult& result) {
  const ProbeSeries& cold = result.series.front();
  const double prompt = median(values_of(cold, &ProbeSample::prompt_tokens));
  const double cached = median(values_of(cold, &ProbeSample::cached_tokens));
  constexpr double kColdShare = 0.05;  // what a template writes in front of every prompt is known
  if (cached <= kColdShare * prompt) return "";
  return fmt::format("{}: cold reads found {:.0f} of {:.0f} tokens: use another --seed\n", result.pattern,
                     cached, prompt);
}

std::string pairs_text(const ProbeReport& report) {
  std::string out = fmt::format("\n{:>6} {:>12} {:>12} {:>9}\n", "pair", "step", "against", "ratio");
  for (std::size_t i = 0; i < report.pairs.size(); ++i) {
    const ProbePair& pair = report.pairs[i];
    out += fmt::format("{:>6} {:>12} {:>12} {:>8.1f}%\n", i + 1, seconds_text(pair.step_s),
                       seconds_text(pair.against_s), 100 * pair.ratio());
  }
  return out + fmt::format("a step costs {:+.1f}% against {} (median of {} pairs)\n", 100 * probe_tax(report),
                           fmt::join(report.against, " "), report.pairs.size());
}

json::object series_json(const ProbeSeries& series, double cold) {
  json::array samples;
  for (const ProbeSample& sample : series.samples) {
    samples.push_back(json::object{{"ttft_s", sample.seconds},
                                   {"prompt_tokens", sample.prompt_tokens},
                                   {"cached_tokens", sample.cached_tokens}});
  }
  return {{"name", series.name},
          {"median_ttft_s", median_of(series)},
          {"worst_ttft_s", worst_of(series)},
          {"ratio_to_cold", median_of(series) / cold},
          {"prompt_tokens", median(values_of(series, &ProbeSample::prompt_tokens))},
          {"cached_tokens", median(values_of(series, &ProbeSample::cached_tokens))},
          {"requests", std::move(samples)}};
}

json::object result_json(const ProbeResult& result) {
  json::array series;
  const double cold = median_of(result.series.front());
  for (const ProbeSeries& each : result.series) series.push_back(series_json(each, cold));
  return {{"pattern", result.pattern},
          {"series", std::move(series)},
          {"compared", result.compared},
          {"identical", result.identical}};
}

// The figures of one pattern at the top, where scripts look for them; of several, those of the first.
void add_top_figures(json::object& out, const ProbeReport& report) {
  if (report.results.empty()) return;
  for (const ProbeSeries& series : report.results.front().series) {
    out[series.name + "_ttft_s"] = median_of(series);
    out[series.name + "_cached_tokens"] = median(values_of(series, &ProbeSample::cached_tokens));
  }
}

}  // namespace

double median(std::vector<double> values) {
  CHECK(!values.empty());
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double probe_tax(const ProbeReport& report) {
  std::vector<double> ratios;
  for (const ProbePair& pair : report.pairs) ratios.push_back(pair.ratio());
  return median(ratios) - 1;
}

bool probe_found_wrong(const ProbeReport& report) {
  return std::ranges::any_of(report.results,
                             [](const ProbeResult& result) { return result.identical < result.compared; });
}

std::string probe_text(const ProbeReport& report) {
  const ProbePlan& plan = report.plan;
  std::string out = fmt::format("{}: about {} tokens, seed {}; time to first token\n", report.model,
                                plan.tokens, plan.seed);
  if (!report.results.empty()) {
    out += fmt::format("\n{:<10} {:<10} {:>4} {:>10} {:>10} {:>9} {:>7} {:>7}\n", "pattern", "request", "n",
                       "median", "worst", "of cold", "prompt", "reused");
  }
  for (const ProbeResult& result : report.results) out += result_text(result);
  if (!report.pairs.empty()) out += pairs_text(report);
  if (!report.results.empty()) out += '\n';
  for (const ProbeResult& result : report.results) {
    if (result.compared > 0)
      out += fmt::format("{}: {} of {} greedy answers are the same after a switch\n", result.pattern,
                         result.identical, result.compared);
    out += warnings_text(result);
  }
  for (const auto& [pattern, why] : report.left_out) out += fmt::format("left out: {}\n", why);
  return out;
}

std::string probe_json(const ProbeReport& report) {
  const ProbePlan& plan = report.plan;
  json::object out{{"strata", json::object{{"version", version()}, {"commit", commit()}}},
                   {"model", report.model},
                   {"context_tokens", plan.context_tokens},
                   {"conversations", plan.conversations},
                   {"tokens", plan.tokens},
                   {"rounds", plan.rounds},
                   {"steps", plan.steps},
                   {"answer_tokens", plan.answer_tokens},
                   {"seed", plan.seed}};
  add_top_figures(out, report);
  json::array patterns, left_out, pairs;
  for (const ProbeResult& result : report.results) patterns.push_back(result_json(result));
  for (const auto& [pattern, why] : report.left_out)
    left_out.push_back(json::object{{"pattern", pattern}, {"why", why}});
  for (const ProbePair& pair : report.pairs)
    pairs.push_back(
        json::object{{"step_s", pair.step_s}, {"against_s", pair.against_s}, {"ratio", pair.ratio()}});
  out["patterns"] = std::move(patterns);
  out["left_out"] = std::move(left_out);
  if (!report.pairs.empty()) {
    out["against"] = json::array(report.against.begin(), report.against.end());
    out["pairs"] = std::move(pairs);
    out["tax"] = probe_tax(report);
  }
  return json::serialize(out) + "\n";
}

}  // namespace strata::cli
