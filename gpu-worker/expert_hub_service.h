#pragma once
// How expert workers join (proto/strata/v1/experts.proto): a board for the process that asks, handed over on
// a stream that stays open as long as the board may be served.

#include <string>

#include "gpu-worker/expert_workers.h"
#include "strata/v1/experts.grpc.pb.h"

namespace strata::gpu_worker {

class ExpertHubService final : public v1::ExpertHub::CallbackService {
 public:
  // `workers` outlives the server that serves this.
  ExpertHubService(ExpertWorkers& workers, std::string model_fingerprint);

  grpc::ServerWriteReactor<v1::AttachExpertsResponse>* Attach(
      grpc::CallbackServerContext* context, const v1::AttachExpertsRequest* request) override;

 private:
  Status check(const v1::AttachExpertsRequest& request) const;

  ExpertWorkers& workers_;
  std::string model_fingerprint_;
};

}  // namespace strata::gpu_worker
