#pragma once
// The gateway's desk: takes every request, answers the small ones at once, starts a Generation for the
// others, and knows the state of the cluster. An actor on the HTTP thread; serve() is called there, too.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/generation/generation.h"
#include "gateway/http/api_keys.h"
#include "gateway/http/cors.h"
#include "gateway/http/request_guard.h"
#include "gateway/http/routes.h"
#include "gateway/metrics/cluster_metrics.h"
#include "gateway/service/documents.h"
#include "gateway/service/preparer.h"
#include "gateway/service/slots.h"

namespace strata::gateway {

struct ServiceOptions {
  std::string listen_host;
  std::vector<config::SecretHash> api_keys = {};
  std::vector<std::string> cors_origins = {};
  bool https = false;
  std::chrono::milliseconds drain{3000};
  // Requests being read, waiting or running at the same time; one more is refused before anybody reads it.
  std::size_t requests_max = 64;
};

class Service : public actor::Actor {
 public:
  struct Prepared {
    std::shared_ptr<Exchange> exchange = {};
    Endpoint endpoint = Endpoint::kChatCompletions;
    // Shared because messages are copied and jobs cannot be.
    std::shared_ptr<ApiResult<GenerationJob>> job = {};
  };
  // A request of /v1/responses between its two steps (preparer.h).
  struct ResponseRead {
    std::shared_ptr<Exchange> exchange = {};
    std::shared_ptr<ResponseRequest> request = {};
  };
  struct PastKnown {
    ResponseRead read = {};
    std::shared_ptr<ApiResult<Past>> past = {};
  };
  // An answer that needs no engine.
  struct Document {
    std::shared_ptr<Exchange> exchange = {};
    ApiResult<std::string> body = {};
  };
  struct GenerationOver {
    TicketId ticket = 0;
  };
  struct Drain {
    std::function<void()> done = {};  // called once, when no answer is running any more
  };
  struct DrainTimeOver {};

  // workers: executors on other threads, for reading and tokenizing requests.
  Service(std::shared_ptr<actor::Executor> executor, ServiceOptions options,
          std::shared_ptr<const Preparer> preparer, ModelCard card, GenerationEnvironment environment,
          obs::Metrics& metrics, std::vector<std::shared_ptr<actor::Executor>> workers);

  void set_address(std::string address) {
    address_ = std::move(address);
  }  // "http://127.0.0.1:8080", before serving
  // What the header alone decides: who may ask, for what, in which form. Leaves with the exchange whose key
  // it was.
  std::optional<HttpResponse> screen(Exchange& exchange);
  // A request that was let through.
  void serve(std::shared_ptr<Exchange> exchange);
  const ClusterView& view() const { return view_; }

  void on(Prepared prepared);
  void on(ResponseRead read);
  void on(PastKnown known);
  void on(Document document);
  void on(GenerationOver over);
  void on(EngineState state);
  void on(AdmissionView view);
  void on(std::shared_ptr<const MetricFamilies> cluster);
  void on(Drain drain);
  void on(DrainTimeOver);

 private:
  std::shared_ptr<Service> self() { return std::static_pointer_cast<Service>(shared_from_this()); }
  std::optional<HttpResponse> admit(Exchange& exchange);
  void answer(const std::shared_ptr<Exchange>& exchange, const Match& match);
  bool may_begin(Exchange& exchange, Endpoint endpoint);
  void prepare(std::shared_ptr<Exchange> exchange, Endpoint endpoint);
  void prepare_response(std::shared_ptr<Exchange> exchange);
  void answer_stored(const std::shared_ptr<Exchange>& exchange, const Match& match);
  using MakeDocument = ApiResult<std::string> (Preparer::*)(const HttpRequest&) const;
  void write_document(std::shared_ptr<Exchange> exchange, MakeDocument make);
  void refuse(Exchange& exchange, Endpoint endpoint, const ApiError& error, Outcome outcome);
  void log_refusal(const Exchange& exchange, Endpoint endpoint, uint32_t status, Outcome outcome);
  HttpResponse metrics_response() const;
  HttpResponse slots_response(std::string_view target);
  void state_changed();
  void drained_if_idle();
  actor::Executor& next_worker();

  std::shared_ptr<actor::Executor> http_executor_;  // for the generations, too
  ServiceOptions options_;
  Cors cors_;
  RequestGuard guard_;
  ApiKeys keys_;
  std::shared_ptr<const Preparer> preparer_;
  ModelCard card_;
  GenerationEnvironment environment_;
  obs::Metrics* metrics_;
  std::vector<std::shared_ptr<actor::Executor>> workers_;
  std::size_t next_worker_ = 0;
  std::string address_;

  ClusterView view_;
  std::shared_ptr<const MetricFamilies> cluster_metrics_ = std::make_shared<const MetricFamilies>();
  std::map<TicketId, std::shared_ptr<Generation>> generations_;
  Slots slots_;
  std::size_t preparing_ = 0;
  std::function<void()> drained_;
};

}  // namespace strata::gateway
