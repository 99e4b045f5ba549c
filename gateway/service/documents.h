#pragma once
// The small answers that need no tokens: models, health, readiness, properties, the page at /. Pure.

#include <string>
#include <vector>

#include "gateway/admission/admission.h"
#include "gateway/http/http_message.h"
#include "gateway/service/model_card.h"

namespace strata::gateway {

// What the gateway knows about the cluster at this moment.
struct ClusterView {
  EngineState engine;
  AdmissionView queue;
  bool draining = false;

  bool serving() const { return !draining && engine.phase == EngineState::Phase::kReady; }
};

HttpResponse models_response(const ModelCard& card, const ClusterView& view);
HttpResponse model_response(const ModelCard& card, const ClusterView& view,
                            const std::string& id);  // 404: another id
HttpResponse live_response();
// 200 {"status":"ok"} when a request would be served, 503 with progress while loading or draining.
HttpResponse health_response(const ClusterView& view);
// 200 {"status":"ready"}, 200 {"status":"degraded","degraded":[...]}, or 503 with the reason as status.
HttpResponse ready_response(const ClusterView& view);
HttpResponse props_response(const ModelCard& card, const ClusterView& view);
HttpResponse index_response(const ModelCard& card, const ClusterView& view, const std::string& address);

}  // namespace strata::gateway
