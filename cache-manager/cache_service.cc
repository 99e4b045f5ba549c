#include "cache-manager/cache_service.h"

#include <utility>

#include "cache-manager/change_request.h"
#include "services/rpc/server.h"

namespace strata::cache_manager {

CacheService::CacheService(std::shared_ptr<ExchangeActor> actor) : actor_(std::move(actor)) {}

namespace {

void write_layer(const LayerSummary& summary, v1::LayerResidency& layer) {
  layer.set_expert_count(summary.expert_count);
  layer.set_quota(summary.quota);
  layer.mutable_experts()->Add(summary.experts.begin(), summary.experts.end());
  layer.mutable_pinned()->Add(summary.pinned.begin(), summary.pinned.end());
  layer.set_exchanges(summary.exchanges);
  layer.set_decode_hits(summary.decode_hits);
  layer.set_decode_misses(summary.decode_misses);
  layer.set_prefill_hits(summary.prefill_hits);
  layer.set_prefill_misses(summary.prefill_misses);
}

void write_residency(const ResidencySummary& summary, v1::GetResidencyResponse& response) {
  response.set_attached(summary.attached);
  response.set_policy(summary.policy);
  response.set_slots(summary.slots);
  response.set_slots_used(summary.slots_used);
  response.set_exchanges_in_flight(summary.in_flight);
  response.set_exchanges_total(summary.exchanges_total);
  for (uint32_t index = 0; index < summary.layers.size(); ++index) {
    v1::LayerResidency& layer = *response.add_layers();
    layer.set_layer(index);
    write_layer(summary.layers[index], layer);
  }
  for (const std::string& name : summary.changed) response.add_changed(name);
  response.set_own_quotas(summary.own_quotas);
  write_live_settings(summary.policy, summary.rates, response);
  response.set_exchanges_per_window_max(summary.limits.exchanges_per_window);
  response.set_exchanges_in_flight_max(summary.in_flight_max);
  response.set_copy_bytes_per_second_max(summary.limits.bytes_per_second);
}

}  // namespace

grpc::ServerUnaryReactor* CacheService::GetResidency(grpc::CallbackServerContext* context,
                                                     const v1::GetResidencyRequest* /*request*/,
                                                     v1::GetResidencyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  actor::tell(actor_, ExchangeActor::DescribeResidency{[reactor, response](const ResidencySummary& summary) {
                write_residency(summary, *response);
                reactor->Finish(grpc::Status::OK);
              }});
  return reactor;
}

grpc::ServerUnaryReactor* CacheService::ChangeResidency(grpc::CallbackServerContext* context,
                                                        const v1::ChangeResidencyRequest* request,
                                                        v1::GetResidencyResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  auto change = read_change(*request);
  if (!change) {
    reactor->Finish(rpc::to_grpc(change.error()));
    return reactor;
  }
  actor::tell(actor_,
              ExchangeActor::Change{.change = std::move(*change),
                                    .reply = [reactor, response](const Result<ResidencySummary>& now) {
                                      if (!now) return reactor->Finish(rpc::to_grpc(now.error()));
                                      write_residency(*now, *response);
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
