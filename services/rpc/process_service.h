#pragma once
// The Process service that every process answers (proto/strata/v1/process.proto).

#include <cstdint>

#include "services/rpc/server.h"
#include "strata/v1/process.grpc.pb.h"

namespace strata::rpc {

class ProcessService final : public v1::Process::CallbackService {
 public:
  ProcessService(const ServerOptions& options, uint64_t instance_id);
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;
  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext* context,
                                       const v1::GetMetricsRequest* request,
                                       v1::GetMetricsResponse* response) override;

 private:
  const ServerOptions& options_;
  uint64_t instance_id_;
};

}  // namespace strata::rpc
