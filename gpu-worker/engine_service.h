#pragma once
// The Engine service (proto/strata/v1/engine.proto): tokens in, tokens out, for the gateway.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu-worker/constraint_maker.h"
#include "gpu-worker/generate_request.h"
#include "gpu-worker/window_loop.h"
#include "strata/v1/engine.grpc.pb.h"

namespace strata::gpu_worker {

struct EngineServiceOptions {
  WindowLoop* loop = nullptr;
  ConstraintMaker* constraints = nullptr;
  RequestLimits limits;
  v1::GetEngineResponse facts;  // what does not change: model, numerics, sizes
  // Fills what does change: degraded, expert_slots_used. Called on a gRPC thread.
  std::function<void(v1::GetEngineResponse&)> fill;
};

class EngineService final : public v1::Engine::CallbackService {
 public:
  explicit EngineService(EngineServiceOptions options);

  grpc::ServerUnaryReactor* GetEngine(grpc::CallbackServerContext* context,
                                      const v1::GetEngineRequest* request,
                                      v1::GetEngineResponse* response) override;
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;

 private:
  EngineServiceOptions options_;
};

}  // namespace strata::gpu_worker
