#pragma once
// The States service (proto/strata/v1/states.proto).

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "gpu-worker/parking/state_feed.h"
#include "services/snapshot/types.h"
#include "strata/v1/states.grpc.pb.h"

namespace strata::gpu_worker {

class StatesService final : public v1::States::CallbackService {
 public:
  // `feed` outlives the service and all its calls.
  StatesService(StateFeed& feed, const snapshot::StateIdentity& identity, uint64_t instance_id);

  // A watcher that lies more than kStatesBacklogMax changes behind is cut off with RESOURCE_EXHAUSTED.
  grpc::ServerWriteReactor<v1::WatchStatesResponse>* Watch(grpc::CallbackServerContext* context,
                                                           const v1::WatchStatesRequest* request) override;

 private:
  StateFeed& feed_;
  std::string identity_;
  uint64_t instance_id_;
};

inline constexpr std::size_t kStatesBacklogMax = 1024;

}  // namespace strata::gpu_worker
