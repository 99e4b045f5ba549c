#include "services/rpc/process_service.h"

#include <unistd.h>

namespace strata::rpc {

ProcessService::ProcessService(const ServerOptions& options, uint64_t instance_id)
    : options_(options), instance_id_(instance_id) {}

grpc::ServerUnaryReactor* ProcessService::GetStatus(grpc::CallbackServerContext* context,
                                                    const v1::GetStatusRequest*,
                                                    v1::GetStatusResponse* response) {
  response->set_name(options_.name);
  response->set_pid(static_cast<uint32_t>(::getpid()));
  response->set_instance_id(instance_id_);
  response->set_config_hash(options_.config_hash);
  response->set_state(v1::PROCESS_STATE_READY);
  if (options_.status) options_.status(*response);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* ProcessService::GetMetrics(grpc::CallbackServerContext* context,
                                                     const v1::GetMetricsRequest*,
                                                     v1::GetMetricsResponse* response) {
  response->set_instance_id(instance_id_);
  if (options_.metrics) to_proto(options_.metrics->collect(), *response);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace strata::rpc
