#include <chrono>
#include <thread>

#include "services/cli/cluster_client.h"
#include "services/cli/commands.h"

namespace strata::cli {

namespace {

// The supervisor itself promises five seconds.
constexpr auto kGoneWithin = std::chrono::seconds(15);

}  // namespace

int run_down(const DownOptions& options) {
  auto cluster = get_cluster(options.run_dir);
  if (!cluster) return report(cluster.error(), exit_code_of(cluster.error()));
  // Held before it is told to stop, so that the pid cannot become somebody else's.
  auto supervisor = sys::ProcessHandle::open(cluster->supervisor_pid());
  if (!supervisor) return 0;
  if (Status stopped = stop_cluster(options.run_dir); !stopped.ok() && !supervisor->gone()) {
    return report(stopped, exit_code_of(stopped));
  }
  auto deadline = std::chrono::steady_clock::now() + kGoneWithin;
  while (!supervisor->gone()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return report(Status(Code::kDeadlineExceeded,
                           fmt::format("the supervisor (pid {}) is still there", supervisor->pid())),
                    kExitFailed);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return 0;
}

}  // namespace strata::cli
