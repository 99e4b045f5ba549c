// strata up: checks everything that can be checked without starting anything, then supervises until it is
// told to stop.
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>

#include "services/actor/actor_system.h"
#include "services/cli/commands.h"
#include "services/cli/detach.h"
#include "services/cli/run_dir.h"
#include "services/cli/supervisor.h"
#include "services/cli/supervisor_service.h"
#include "services/model/model_config.h"
#include "services/obs/log.h"
#include "services/rpc/server.h"

namespace strata::cli {

namespace asio = boost::asio;

namespace {

// Opens the model as the workers will, so that a missing or damaged file is said at once and by one process
// only.
Status check_model(const config::Settings& settings) {
  if (settings.model_path().empty())
    return fail(Code::kInvalidArgument, "model.path is not set: it names the GGUF file to run");
  TRY(gguf::GgufFile file, gguf::GgufFile::open(settings.model_path().string()));
  TRY_OK(model::read_model_config(file).map([](const auto&) {}));
  return {};
}

obs::Level level_of(const config::Choice& choice) {
  if (choice == "debug") return obs::Level::kDebug;
  if (choice == "warn") return obs::Level::kWarn;
  return choice == "error" ? obs::Level::kError : obs::Level::kInfo;
}

SupervisorOptions supervisor_options(const config::Settings& settings, const RunDir& run_dir) {
  SupervisorOptions options;
  options.children = cluster_children(settings, own_folder(), run_dir.path(), run_dir.config_path());
  options.backoff = std::chrono::milliseconds(settings.supervisor_backoff_ms());
  options.backoff_max = std::chrono::milliseconds(settings.supervisor_backoff_max_ms());
  options.drain = std::chrono::milliseconds(settings.supervisor_drain_ms());
  return options;
}

void print_ready(const std::string& address) {
  std::printf("ready %s\n", address.c_str());
  std::fflush(stdout);
}

Result<std::unique_ptr<rpc::Server>> serve(std::shared_ptr<Supervisor> supervisor,
                                           const config::Settings& settings, const config::LoadOptions& load,
                                           const std::string& run_dir) {
  rpc::ServerOptions options;
  options.run_dir = run_dir;
  options.name = "supervisor";
  options.config_hash = config::config_hash(settings);
  options.status = [supervisor](v1::GetStatusResponse& response) {
    response.set_state(supervisor->view().ready ? v1::PROCESS_STATE_READY : v1::PROCESS_STATE_STARTING);
  };
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<SupervisorService>(supervisor, settings, load, run_dir));
  return rpc::Server::start(std::move(options), std::move(services));
}

Result<int> supervise(const RunDir& run_dir, const config::Settings& settings,
                      const config::LoadOptions& load) {
  asio::io_context events;  // this thread: signals, and the ends of processes
  AsioProcessHost host(events);
  GrpcStatusSource status(run_dir.path());
  // One thread, for processes die with the thread that started them.
  actor::ActorSystem system(1);
  int exit_code = 0;
  SupervisorEvents on_event;
  on_event.ready = print_ready;
  on_event.finished = [&](int code) {
    asio::post(events, [&exit_code, &events, code] {
      exit_code = code;
      events.stop();
    });
  };
  auto supervisor = std::make_shared<Supervisor>(
      system.make_executor(), supervisor_options(settings, run_dir), host, status, std::move(on_event));
  asio::signal_set signals(events, SIGTERM, SIGINT, SIGHUP);
  std::function<void(boost::system::error_code, int)> on_signal = [&](boost::system::error_code error, int) {
    if (error) return;
    actor::tell(supervisor, Supervisor::Stop{});
    signals.async_wait(on_signal);
  };
  signals.async_wait(on_signal);

  TRY(auto server, serve(supervisor, settings, load, run_dir.path()));
  server->set_serving(true);
  actor::tell(supervisor, Supervisor::Start{});
  events.run();
  server->stop();
  system.stop();
  return exit_code;
}

}  // namespace

int run_up(UpOptions options) {
  std::signal(SIGPIPE, SIG_IGN);
  if (!options.listen.empty())
    options.load.sets.push_back(fmt::format("gateway.listen='{}'", options.listen));
  auto settings = config::load(options.load);
  if (!settings) return report(settings.error(), kExitFault);
  if (Status model = check_model(**settings); !model.ok()) return report(model, kExitFault);
  if (options.detach) return detach(options);

  auto run_dir = RunDir::take(options.run_dir);
  if (!run_dir) return report(run_dir.error(), kExitFault);
  if (Status written = run_dir->write_config(config::to_yaml(**settings, false)); !written.ok()) {
    return report(written, kExitFault);
  }
  obs::init_log({.process = "supervisor",
                 .level = level_of((*settings)->log_level()),
                 .json = (*settings)->log_format() == "json"});
  auto exit_code = supervise(*run_dir, **settings, options.load);
  run_dir->clean();
  return exit_code ? *exit_code : report(exit_code.error(), kExitFault);
}

}  // namespace strata::cli
