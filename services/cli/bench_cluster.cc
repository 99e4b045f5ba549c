#include "services/cli/bench_cluster.h"

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "services/cli/cluster_client.h"

namespace strata::cli {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr auto kStopPatience = std::chrono::seconds(10);

std::string log_end(const std::string& path) {
  constexpr std::size_t kShown = 2000;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string all = text.str();
  return all.size() <= kShown ? all : all.substr(all.size() - kShown);
}

std::vector<std::string> arguments_of(const BenchClusterOptions& options) {
  std::vector<std::string> arguments = {"/proc/self/exe",  "up",         "--config",
                                        options.load.path, "--run-dir",  options.run_dir,
                                        "--listen",        "127.0.0.1:0"};
  // The deployment's own cluster may be using that folder, and made-up conversations do not belong there.
  // What is parked lies in the run directory and goes with it, unless the options below say otherwise.
  arguments.insert(arguments.end(), {"--set", "conversations.disk_folder=''"});
  for (const std::string& set : options.load.sets) {
    arguments.push_back("--set");
    arguments.push_back(set);
  }
  if (options.load.allow_unknown) arguments.push_back("--allow-unknown");
  return arguments;
}

}  // namespace

Result<BenchCluster> BenchCluster::start(const BenchClusterOptions& options) {
  TRY(auto process,
      sys::spawn({.arguments = arguments_of(options), .environment = {}, .output_path = options.log_path}));
  BenchCluster cluster(std::move(process), options.log_path);
  for (;;) {
    TRY_OK(cluster.check());
    if (options.cancelled->load()) return fail(Code::kCancelled, "cancelled");
    const auto view = get_cluster(options.run_dir);
    if (view && view->ready() && !view->address().empty()) {
      TRY(cluster.url_, cluster_url(view->address(), options.run_dir));
      return cluster;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

Status BenchCluster::check() const {
  if (!process_.gone()) return {};
  return fail(Code::kUnavailable, "the cluster has ended:\n{}", log_end(log_path_));
}

BenchCluster::~BenchCluster() {
  if (process_.fd() < 0) return;  // moved from
  process_.send_signal(SIGTERM);
  const auto patience_over = std::chrono::steady_clock::now() + kStopPatience;
  while (!process_.gone() && std::chrono::steady_clock::now() < patience_over)
    std::this_thread::sleep_for(kLookEvery);
  constexpr uint32_t kKillPatienceMs = 5000;
  if (!process_.gone()) static_cast<void>(process_.kill_and_wait(kKillPatienceMs));
  static_cast<void>(sys::reap(process_));
}

}  // namespace strata::cli
