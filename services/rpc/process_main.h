#pragma once
// What the main() of every worker process has in common: options, settings, log, signals.
//
//   int main(int argc, char** argv) {
//     auto context = rpc::start_process(argc, argv, "gpu-worker", "Computes the model ...");
//     if (!context) return rpc::startup_failed(context.error());
//     ...wire; a start-up fault: return rpc::startup_failed(status)...
//     rpc::wait_for_stop_signal();
//   }
//
// Exit codes: 0 stopped as asked; 2 a start-up fault that trying again cannot mend (the supervisor gives up);
// anything else is restarted.

#include <memory>
#include <string>
#include <string_view>

#include "services/base/status.h"
#include "services/config/load.h"

namespace strata::rpc {

inline constexpr int kExitStartupFault = 2;

struct ProcessContext {
  std::string name;     // --name
  std::string run_dir;  // --run-dir, exists, 0700
  std::string run_id;   // shm::run_id(run_dir)
  std::unique_ptr<config::Settings> settings;
  std::string config_hash;
};

// The configuration is the one effective file that the supervisor wrote: the environment is not asked again.
//
// Options: --config F (needed), --run-dir D (needed), --name N, --set PATH=VALUE (repeats), --help,
// --version. Prints help and exits 0 by itself. Starts the log, blocks SIGTERM and SIGINT for all threads
// made later (wait_for_stop_signal takes them), ignores SIGPIPE, and dies with its parent.
Result<ProcessContext> start_process(int argc, char** argv, std::string_view default_name,
                                     std::string_view description);

// "strata-gpu-worker: models/x.gguf: no such file" on standard error, one line; returns kExitStartupFault.
int startup_failed(const Status& status);

// Blocks until SIGTERM or SIGINT.
void wait_for_stop_signal();

}  // namespace strata::rpc
