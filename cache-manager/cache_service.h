#pragma once
// The Cache service (proto/strata/v1/cache.proto): questions and demands to the exchange actor.

#include <memory>

#include "cache-manager/exchange_actor.h"
#include "strata/v1/cache.grpc.pb.h"

namespace strata::cache_manager {

class CacheService final : public v1::Cache::CallbackService {
 public:
  explicit CacheService(std::shared_ptr<ExchangeActor> actor);

  grpc::ServerUnaryReactor* GetResidency(grpc::CallbackServerContext* context,
                                         const v1::GetResidencyRequest* request,
                                         v1::GetResidencyResponse* response) override;
  grpc::ServerUnaryReactor* ChangeResidency(grpc::CallbackServerContext* context,
                                            const v1::ChangeResidencyRequest* request,
                                            v1::GetResidencyResponse* response) override;
  grpc::ServerUnaryReactor* SaveProfile(grpc::CallbackServerContext* context,
                                        const v1::SaveProfileRequest* request,
                                        v1::SaveProfileResponse* response) override;

 private:
  std::shared_ptr<ExchangeActor> actor_;
};

}  // namespace strata::cache_manager
