#include "services/rpc/process_main.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "services/base/build_info.h"
#include "services/obs/log.h"
#include "services/shm/segment.h"
#include "services/sys/process.h"

namespace strata::rpc {

namespace {

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

Status check_run_dir(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fail(Code::kNotFound, "--run-dir {}: no such folder", path);
  }
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    return fail(Code::kPermissionDenied,
                "--run-dir {}: must belong to the user and have mode 0700, for sockets are in it", path);
  }
  return {};
}

obs::Level level_of(const config::Choice& choice) {
  if (choice == "debug") return obs::Level::kDebug;
  if (choice == "warn") return obs::Level::kWarn;
  if (choice == "error") return obs::Level::kError;
  return obs::Level::kInfo;
}

// The name of the program, for the one line that says why it did not start.
std::string program_name = "strata";

}  // namespace

Result<ProcessContext> start_process(int argc, char** argv, std::string_view default_name,
                                     std::string_view description) {
  program_name = std::string(argv[0]).substr(std::string(argv[0]).rfind('/') + 1);
  ProcessContext context;
  context.name = default_name;
  config::LoadOptions load_options;
  load_options.use_environment = false;

  CLI::App app{std::string(description) + "\nStarted by `strata up`; rarely by hand."};
  app.add_option("--config", load_options.path, "Effective configuration (RUN_DIR/config.yaml)")->required();
  app.add_option("--run-dir", context.run_dir, "Folder of the cluster's sockets, mode 0700")->required();
  app.add_option("--name", context.name, "Name of this process in the cluster")->capture_default_str();
  app.add_option("--set", load_options.sets, "PATH=VALUE over the configuration; repeats")
      ->allow_extra_args(false);
  app.set_version_flag("--version", fmt::format("{} {} ({})", program_name, version(), commit()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::exit(app.exit(success));
  } catch (const CLI::ParseError& error) {
    return fail(Code::kInvalidArgument, "{}", error.what());
  }

  TRY_OK(check_run_dir(context.run_dir));
  context.run_id = shm::run_id(context.run_dir);
  TRY(context.settings, config::load(load_options));
  context.config_hash = config::config_hash(*context.settings);

  obs::init_log({.process = context.name,
                 .level = level_of(context.settings->log_level()),
                 .json = context.settings->log_format() == "json"});
  sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  sys::die_with_parent();
  return context;
}

int startup_failed(const Status& status) {
  std::fprintf(stderr, "%s: %s\n", program_name.c_str(), status.message().c_str());
  return kExitStartupFault;
}

void wait_for_stop_signal() {
  sigset_t signals = stop_signals();
  int signal = 0;
  sigwait(&signals, &signal);
}

}  // namespace strata::rpc
