#pragma once
// What `strata top` shows: rates between two looks at the metrics of a cluster's processes.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/v1/engine.pb.h"
#include "strata/v1/process.pb.h"
#include "strata/v1/supervisor.pb.h"

namespace strata::cli {

// One look. A process that did not answer has no entry.
struct TopSample {
  double seconds = 0;  // on any steady clock
  v1::GetClusterResponse cluster;
  std::optional<v1::GetEngineResponse> engine;
  std::map<std::string, v1::GetMetricsResponse> metrics;  // by process
};

struct ThreadRow {
  double busy = 0;       // share of the time, 0..1
  bool differs = false;  // far from its siblings: a slow core, or one that others use, too
};

struct WorkerRow {
  std::string name;
  double busy = 0;  // share of the time with a request on its board
  double experts_per_second = 0;
  double bytes_per_second = 0;
  std::vector<ThreadRow> threads;
};

struct TopView {
  double prompt_tokens_per_second = 0;  // computed ones
  double generated_tokens_per_second = 0;
  double decode_windows_per_second = 0;
  double decode_window_ms = 0;
  std::vector<std::pair<std::string, double>> stages;  // share of decoding, largest first
  std::optional<double> hit_ratio;                     // none: no expert was used
  double exchanges_per_second = 0;
  std::vector<WorkerRow> workers;
};

// Rates from `before` to `now`. A process that was restarted in between is counted from its start; one that
// did not answer both times has no rates.
TopView make_top_view(const TopSample& before, const TopSample& now);

// The screen, `columns` wide.
std::string top_text(const TopSample& now, const TopView& view, uint32_t columns);

}  // namespace strata::cli
