// strata top: the rates of a running cluster, and how busy each expert thread is.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"
#include "services/cli/terminal.h"
#include "services/cli/top_view.h"

namespace strata::cli {

namespace {

constexpr uint32_t kColumnsDefault = 100;

Result<TopSample> look(const std::string& run_dir) {
  TopSample sample;
  TRY(sample.cluster, get_cluster(run_dir));
  for (const auto& child : sample.cluster.processes()) {
    if (child.state() != v1::CHILD_STATE_READY) continue;
    if (auto metrics = get_metrics(run_dir, child.name())) sample.metrics[child.name()] = std::move(*metrics);
  }
  if (auto engine = get_engine(run_dir)) sample.engine = std::move(*engine);
  sample.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return sample;
}

}  // namespace

int run_top(const TopOptions& options) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const uint32_t looks = options.count != 0 || terminal ? options.count : 1;
  auto before = look(options.run_dir);
  for (uint32_t shown = 0; looks == 0 || shown < looks; ++shown) {
    if (!before) return report(before.error(), exit_code_of(before.error()));
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_seconds));
    auto now = look(options.run_dir);
    if (!now) return report(now.error(), exit_code_of(now.error()));
    const std::string text = top_text(*now, make_top_view(*before, *now), terminal_columns(kColumnsDefault));
    if (terminal) {
      std::fputs("\033[H\033[2J", stdout);  // a clean screen, from its top
    } else if (shown > 0) {
      std::fputs("\n", stdout);
    }
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    before = std::move(now);
  }
  return 0;
}

}  // namespace strata::cli
