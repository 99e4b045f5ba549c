#include "services/cli/supervisor_service.h"

#include <unistd.h>

#include "services/rpc/server.h"

namespace strata::cli {

namespace {

v1::ChildState to_proto(ChildState state) {
  switch (state) {
    case ChildState::kStarting:
      return v1::CHILD_STATE_STARTING;
    case ChildState::kReady:
      return v1::CHILD_STATE_READY;
    case ChildState::kRestarting:
      return v1::CHILD_STATE_RESTARTING;
    case ChildState::kStopping:
      return v1::CHILD_STATE_STOPPING;
    case ChildState::kStopped:
      return v1::CHILD_STATE_STOPPED;
  }
  return v1::CHILD_STATE_UNSPECIFIED;
}

double seconds_since(actor::Clock::time_point then) {
  return std::chrono::duration<double>(actor::Clock::now() - then).count();
}

}  // namespace

SupervisorService::SupervisorService(std::shared_ptr<Supervisor> supervisor, const config::Settings& running,
                                     config::LoadOptions options, std::string run_dir)
    : supervisor_(std::move(supervisor)),
      running_(running),
      running_hash_(config::config_hash(running)),
      options_(std::move(options)),
      run_dir_(std::move(run_dir)) {}

grpc::ServerUnaryReactor* SupervisorService::GetCluster(grpc::CallbackServerContext* context,
                                                        const v1::GetClusterRequest*,
                                                        v1::GetClusterResponse* response) {
  ClusterView view = supervisor_->view();
  response->set_supervisor_pid(static_cast<uint32_t>(::getpid()));
  response->set_config_path(options_.path);
  response->set_config_hash(running_hash_);
  response->set_address(view.address);
  response->set_ready(view.ready);
  response->set_uptime_seconds(seconds_since(view.started));
  for (const ChildView& child : view.children) {
    auto* process = response->add_processes();
    process->set_name(child.name);
    process->set_pid(child.pid);
    process->set_state(to_proto(child.state));
    process->set_restarts(child.restarts);
    process->set_uptime_seconds(child.pid == 0 ? 0 : seconds_since(child.started));
    process->set_rss_bytes(child.pid == 0 ? 0 : sys::rss_bytes(child.pid));
    process->set_socket(rpc::socket_path(run_dir_, child.name));
    process->set_last_exit(child.last_exit);
  }
  compare_with_file(*response);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

// The file, with the environment and the --set options of the start over it, is what a restart would run
// with.
void SupervisorService::compare_with_file(v1::GetClusterResponse& response) const {
  auto now = config::load(options_);
  if (!now) {
    response.set_config_stale(true);
    response.add_config_differences(now.error().message());
    return;
  }
  for (const config::PropertyBase* property : running_.all()) {
    const config::PropertyBase* other = (*now)->find(property->name());
    if (other->text() == property->text()) continue;
    response.set_config_stale(true);
    response.add_config_differences(fmt::format("{}: '{}' runs, the file says '{}' (takes effect: {})",
                                                property->name(), property->text(), other->text(),
                                                config::applies_name(property->meta().applies)));
  }
}

grpc::ServerUnaryReactor* SupervisorService::Stop(grpc::CallbackServerContext* context,
                                                  const v1::StopRequest*, v1::StopResponse*) {
  actor::tell(supervisor_, Supervisor::Stop{});
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace strata::cli
