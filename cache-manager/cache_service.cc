#include "cache-manager/cache_service.h"

#include <utility>

#include "services/rpc/server.h"

namespace strata::cache_manager {

CacheService::CacheService(std::shared_ptr<ExchangeActor> actor) : actor_(std::move(actor)) {}

grpc::ServerUnaryReactor* CacheService::GetResidency(grpc::CallbackServerContext* context,
                                                     const v1::GetResidencyRequest* /*request*/,
                                                     v1::GetResidencyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(actor_, ExchangeActor::DescribeResidency{[reactor, response](const ResidencySummary& summary) {
                response->set_attached(summary.attached);
                response->set_policy(summary.policy);
                response->set_slots(summary.slots);
                response->set_slots_used(summary.slots_used);
                response->set_exchanges_in_flight(summary.in_flight);
                response->set_exchanges_total(summary.exchanges_total);
                for (uint32_t index = 0; index < summary.experts.size(); ++index) {
                  v1::LayerResidency& layer = *response->add_layers();
                  layer.set_layer(index);
                  if (index < summary.quotas.size()) layer.set_quota(summary.quotas[index]);
                  layer.mutable_experts()->Add(summary.experts[index].begin(), summary.experts[index].end());
                }
                reactor->Finish(grpc::Status::OK);
              }});
  return reactor;
}

grpc::ServerUnaryReactor* CacheService::GetUsage(grpc::CallbackServerContext* context,
                                                 const v1::GetUsageRequest* /*request*/,
                                                 v1::GetUsageResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(
      actor_, ExchangeActor::DescribeUsage{[reactor, response](const Result<UsageSummary>& usage) {
        if (!usage) return reactor->Finish(rpc::to_grpc(usage.error()));
        response->set_model_fingerprint(usage->model_fingerprint);
        response->set_layers(usage->layers);
        response->set_experts(usage->experts);
        response->mutable_decode_counts()->Add(usage->decode_counts.begin(), usage->decode_counts.end());
        response->mutable_prefill_counts()->Add(usage->prefill_counts.begin(), usage->prefill_counts.end());
        reactor->Finish(grpc::Status::OK);
      }});
  return reactor;
}

grpc::ServerUnaryReactor* CacheService::SaveProfile(grpc::CallbackServerContext* context,
                                                    const v1::SaveProfileRequest* request,
                                                    v1::SaveProfileResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(actor_,
              ExchangeActor::SaveProfile{.path = request->path(),
                                         .only_if_changed = false,
                                         .reply = [reactor, response](const Result<std::string>& saved) {
                                           if (!saved) return reactor->Finish(rpc::to_grpc(saved.error()));
                                           response->set_path(*saved);
                                           reactor->Finish(grpc::Status::OK);
                                         }});
  return reactor;
}

}  // namespace strata::cache_manager
