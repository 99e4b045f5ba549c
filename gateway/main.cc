// strata-gateway: the HTTP server of a cluster.

#include <grpcpp/grpcpp.h>

#include "gateway/gateway.h"
#include "services/expert/thread_plan.h"
#include "services/rpc/process_main.h"
#include "services/rpc/server.h"

namespace {

using namespace strata;

void fill_status(const gateway::Gateway& gateway, v1::GetStatusResponse& response) {
  const gateway::GatewayStatus status = gateway.status();
  response.set_progress(status.progress);
  if (status.draining) {
    response.set_state(v1::PROCESS_STATE_DRAINING);
  } else if (!status.was_ready) {
    response.set_state(v1::PROCESS_STATE_STARTING);
    response.set_detail("waiting for the gpu-worker");
  } else if (!status.degraded.empty()) {
    response.set_state(v1::PROCESS_STATE_DEGRADED);
  } else {
    response.set_state(v1::PROCESS_STATE_READY);
  }
  for (const std::string& peer : status.degraded) response.add_degraded(peer);
  for (const auto& [name, value] : status.facts) {
    v1::Fact& fact = *response.add_facts();
    fact.set_name(name);
    fact.set_value(value);
  }
}

Status run(const rpc::ProcessContext& context) {
  expert::stay_off_expert_cpus(*context.settings);
  gateway::GatewayOptions options;
  options.settings = context.settings.get();
  options.run_dir = context.run_dir;
  options.config_hash = context.config_hash;
  TRY(auto gateway, gateway::Gateway::start(std::move(options)));
  rpc::ServerOptions server_options{
      .run_dir = context.run_dir,
      .name = context.name,
      .status = [&gateway](v1::GetStatusResponse& response) { fill_status(*gateway, response); },
      .metrics = gateway->metrics(),
      .config_hash = context.config_hash};
  TRY(auto server, rpc::Server::start(std::move(server_options), {}));
  server->set_serving(true);
  rpc::wait_for_stop_signal();
  gateway->drain_and_stop();
  server->stop();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  auto context = rpc::start_process(argc, argv, "gateway", "Serves the cluster's model over HTTP.");
  if (!context) return rpc::startup_failed(context.error());
  if (Status status = run(*context); !status.ok()) return rpc::startup_failed(status);
  return 0;
}
