#pragma once
// The Routing service (proto/strata/v1/routing.proto): streams what a RoutingLog takes from the window loop.

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "gpu-worker/routing_log.h"
#include "gpu-worker/window_loop.h"
#include "strata/v1/routing.grpc.pb.h"

namespace strata::gpu_worker {

struct RoutingServiceOptions {
  WindowLoop* loop = nullptr;  // outlives the service and all its calls
  RoutingShape shape;
  uint32_t experts = 0;  // of a layer, the largest count
  std::string model_fingerprint;
  uint64_t log_bytes = uint64_t{16} << 20;  // what waits for a slow reader at most, in the ring
};

class RoutingService final : public v1::Routing::CallbackService {
 public:
  explicit RoutingService(RoutingServiceOptions options);

  grpc::ServerWriteReactor<v1::RecordRoutingResponse>* RecordRouting(
      grpc::CallbackServerContext* context, const v1::RecordRoutingRequest* request) override;
  grpc::ServerUnaryReactor* StopRecording(grpc::CallbackServerContext* context,
                                          const v1::StopRecordingRequest* request,
                                          v1::StopRecordingResponse* response) override;

 private:
  struct Holder;
  class Recording;

  RoutingServiceOptions options_;
  std::shared_ptr<Holder> holder_;
};

}  // namespace strata::gpu_worker
