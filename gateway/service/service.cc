#include "gateway/service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gateway/api/request_fields.h"
#include "gateway/openapi/document.h"
#include "services/base/check.h"
#include "services/obs/log.h"

namespace strata::gateway {

namespace {

constexpr uint32_t kFloodRetrySeconds = 1;

ApiResult<GenerationJob> make_job(const Preparer& preparer, Endpoint endpoint, const HttpRequest& request) {
  switch (endpoint) {
    case Endpoint::kChatCompletions:
      return preparer.chat(request);
    case Endpoint::kCompletions:
      return preparer.completion(request);
    case Endpoint::kMessages:
      return preparer.messages(request);
    case Endpoint::kResponses:
      break;  // in two steps: see service_responses.cc
  }
  return tl::unexpected(ApiError{.status = 500, .type = "server_error", .message = "unknown endpoint"});
}

// Of the routes that generate.
std::optional<Endpoint> endpoint_of(Route route) {
  switch (route) {
    case Route::kChatCompletions:
      return Endpoint::kChatCompletions;
    case Route::kCompletions:
      return Endpoint::kCompletions;
    case Route::kMessages:
      return Endpoint::kMessages;
    case Route::kResponses:
      return Endpoint::kResponses;
    default:
      return {};
  }
}

// The header is for whoever cannot change the body, a proxy: it shortens what the body allows.
void limit_time(ApiResult<GenerationJob>& job, const HttpRequest& request) {
  if (!job) return;
  auto timeout = read_timeout_header(request.header("x-timeout-ms"));
  if (!timeout) {
    job = tl::unexpected(std::move(timeout).error());
  } else if (*timeout) {
    job->timeout = std::min(job->timeout.value_or(**timeout), **timeout);
  }
}

}  // namespace

Service::Service(std::shared_ptr<actor::Executor> executor, ServiceOptions options,
                 std::shared_ptr<const Preparer> preparer, ModelCard card, GenerationEnvironment environment,
                 obs::Metrics& metrics, std::vector<std::shared_ptr<actor::Executor>> workers)
    : Actor(executor),
      http_executor_(std::move(executor)),
      options_(std::move(options)),
      cors_(options_.cors_origins),
      guard_(options_.listen_host, cors_, options_.https ? "https" : "http"),
      keys_(options_.api_keys),
      preparer_(std::move(preparer)),
      card_(std::move(card)),
      environment_(std::move(environment)),
      metrics_(&metrics),
      workers_(std::move(workers)) {}

std::optional<HttpResponse> Service::screen(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  const Dialect dialect = dialect_of(request.target);
  // First, so that an allowed page can read whatever the answer is.
  exchange.add_headers(cors_.response_headers(request));
  if (auto error = guard_.check(request)) return error_response(*error, dialect);
  // Without key: a browser's preflight carries none.
  if (request.method == "OPTIONS") {
    return HttpResponse{
        .status = 204, .content_type = "", .body = "", .headers = cors_.preflight_headers(request)};
  }
  auto match = find_route(request.method, request.target);
  if (auto refusal = admit(exchange)) {
    if (auto endpoint = match ? endpoint_of(match->route) : std::nullopt)
      environment_.probe->request_done(*endpoint, Outcome::kUnauthorized);
    return refusal;
  }
  if (!match) {
    HttpResponse response = error_response(match.error().error, dialect);
    if (!match.error().allow.empty()) response.headers.emplace_back("Allow", match.error().allow);
    return response;
  }
  if (request.method != "POST") return {};
  if (auto error = guard_.check_body_form(request)) return error_response(*error, dialect);
  return {};
}

// A 401, or nothing.
std::optional<HttpResponse> Service::admit(Exchange& exchange) {
  if (needs_no_key(exchange.request().target)) return {};
  auto key = keys_.admit(exchange.request());
  if (key) {
    exchange.set_key_hash(std::move(*key));
    return {};
  }
  HttpResponse response = error_response(key.error(), dialect_of(exchange.request().target));
  response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"strata\"");
  return response;
}

void Service::serve(std::shared_ptr<Exchange> exchange) {
  auto match = find_route(exchange->request().method, exchange->request().target);
  CHECK(match.has_value(), "{} was let through", exchange->request().id);
  answer(exchange, *match);
}

void Service::answer(const std::shared_ptr<Exchange>& exchange, const Match& match) {
  switch (match.route) {
    case Route::kIndex:
      return exchange->respond(index_response(card_, view_, address_));
    case Route::kLive:
      return exchange->respond(live_response());
    case Route::kHealth:
      return exchange->respond(health_response(view_));
    case Route::kReady:
      return exchange->respond(ready_response(view_));
    case Route::kMetrics:
      return exchange->respond(metrics_response());
    case Route::kProps:
      return exchange->respond(props_response(card_, view_));
    case Route::kModels:
      return exchange->respond(models_response(card_, view_));
    case Route::kModel:
      return exchange->respond(model_response(card_, view_, match.name));
    case Route::kChatCompletions:
      return prepare(exchange, Endpoint::kChatCompletions);
    case Route::kCompletions:
      return prepare(exchange, Endpoint::kCompletions);
    case Route::kMessages:
      return prepare(exchange, Endpoint::kMessages);
    case Route::kResponses:
      return prepare_response(exchange);
    case Route::kResponse:
    case Route::kDeleteResponse:
    case Route::kResponseItems:
    case Route::kCancelResponse:
      return answer_stored(exchange, match);
    case Route::kCountTokens:
      return write_document(exchange, &Preparer::count_tokens);
    case Route::kTokenize:
      return write_document(exchange, &Preparer::tokenize);
    case Route::kDetokenize:
      return write_document(exchange, &Preparer::detokenize);
    case Route::kSlots:
      return exchange->respond(slots_response(exchange->request().target));
    case Route::kOpenApi:
      return exchange->respond({.body = std::string(openapi_document())});
    case Route::kApplyTemplate:
      return write_document(exchange, &Preparer::template_text);
  }
}

// ---- generations

// False: the request has its refusal.
bool Service::may_begin(Exchange& exchange, Endpoint endpoint) {
  if (view_.draining) {
    refuse(exchange, endpoint, shutting_down(), Outcome::kOverloaded);
    return false;
  }
  // The queue decides who gets in. This bound only keeps a flood of bodies from being parsed for nothing.
  if (preparing_ + generations_.size() < options_.requests_max) return true;
  const auto known = static_cast<uint32_t>(preparing_ + generations_.size());
  refuse(exchange, endpoint, overloaded(known, kFloodRetrySeconds), Outcome::kOverloaded);
  return false;
}

void Service::prepare(std::shared_ptr<Exchange> exchange, Endpoint endpoint) {
  if (!may_begin(*exchange, endpoint)) return;
  ++preparing_;
  // The exchange belongs to the HTTP thread, its request does not change: the worker may read it.
  next_worker().post([service = self(), preparer = preparer_, exchange = std::move(exchange), endpoint] {
    auto job = make_job(*preparer, endpoint, exchange->request());
    Prepared prepared{.exchange = exchange,
                      .endpoint = endpoint,
                      .job = std::make_shared<ApiResult<GenerationJob>>(std::move(job))};
    tell(service, std::move(prepared));
  });
}

void Service::on(Prepared prepared) {
  --preparing_;
  limit_time(*prepared.job, prepared.exchange->request());
  Exchange& exchange = *prepared.exchange;
  if (!*prepared.job) return refuse(exchange, prepared.endpoint, prepared.job->error(), Outcome::kBadRequest);
  GenerationJob& job = **prepared.job;
  if (view_.engine.phase == EngineState::Phase::kReady) {
    const uint32_t context = view_.engine.info.context_tokens;
    if (const Prompt* too_long = first_too_long(job.prompts, context)) {
      return refuse(exchange, prepared.endpoint, context_exceeded(too_long->tokens.size(), context),
                    Outcome::kTooLong);
    }
  }
  const TicketId ticket = ++*environment_.last_ticket;
  auto generation =
      std::make_shared<Generation>(http_executor_, ticket, environment_, prepared.exchange, std::move(job),
                                   [weak = std::weak_ptr<Service>(self())](TicketId over) {
                                     if (auto service = weak.lock())
                                       tell(service, GenerationOver{.ticket = over});
                                   });
  generations_[ticket] = generation;
  tell(generation, Generation::Start{});
}

void Service::on(GenerationOver over) {
  generations_.erase(over.ticket);
  drained_if_idle();
}

void Service::refuse(Exchange& exchange, Endpoint endpoint, const ApiError& error, Outcome outcome) {
  environment_.probe->request_done(endpoint, outcome);
  exchange.set_log_detail(fmt::format(" outcome={}", outcome_name(outcome)));
  exchange.respond(error_response(error, dialect_of(exchange.request().target)));
  log_refusal(exchange, endpoint, error.status, outcome);
  drained_if_idle();
}

void Service::log_refusal(const Exchange& exchange, Endpoint endpoint, uint32_t status, Outcome outcome) {
  RequestLog* log = environment_.request_log;
  if (log == nullptr) return;
  RequestRecord record{.ended = std::chrono::system_clock::now(),
                       .request_id = exchange.request().id,
                       .endpoint = endpoint,
                       .key_hash = exchange.request().key_hash,
                       .outcome = outcome,
                       .status = status};
  if (log->wants_content()) record.content = RequestContent{.request = exchange.request().body};
  log->add(std::move(record));
}

// Takes no sequence: a busy or loading engine does not matter.
void Service::write_document(std::shared_ptr<Exchange> exchange, MakeDocument make) {
  next_worker().post([service = self(), preparer = preparer_, exchange = std::move(exchange), make] {
    tell(service, Document{.exchange = exchange, .body = ((*preparer).*make)(exchange->request())});
  });
}

void Service::on(Document document) {
  Exchange& exchange = *document.exchange;
  if (!document.body) {
    return exchange.respond(error_response(document.body.error(), dialect_of(exchange.request().target)));
  }
  exchange.respond({.body = std::move(*document.body)});
}

// ---- the cluster's state

void Service::on(EngineState state) {
  if (state.phase == EngineState::Phase::kReady) {
    card_.context_tokens = state.info.context_tokens;
    card_.sequences = state.info.sequences_max;
  }
  if (state.phase != view_.engine.phase) {
    obs::info("engine", "{}",
              state.phase == EngineState::Phase::kReady     ? "ready"
              : state.phase == EngineState::Phase::kLoading ? "loading the model"
                                                            : "not there");
  }
  view_.engine = std::move(state);
  state_changed();
}

void Service::on(AdmissionView view) {
  view_.queue = view;
  environment_.probe->running.Set(view.running);
  environment_.probe->waiting.Set(view.waiting);
  state_changed();
}

void Service::on(std::shared_ptr<const MetricFamilies> cluster) { cluster_metrics_ = std::move(cluster); }

void Service::state_changed() { environment_.probe->ready.Set(ready_response(view_).status == 200 ? 1 : 0); }

HttpResponse Service::metrics_response() const {
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = obs::Metrics::to_text(merge_families({metrics_->collect(), *cluster_metrics_}))};
}

HttpResponse Service::slots_response(std::string_view target) {
  std::vector<Slots::Entry> running;
  for (const auto& [ticket, generation] : generations_) {
    for (RunningView& view : generation->running())
      running.push_back({.ticket = view.ticket, .view = std::move(view)});
  }
  std::ranges::sort(running, {}, &Slots::Entry::ticket);
  const auto& slots = slots_.place(running, card_.sequences);
  const bool all_busy = std::ranges::all_of(slots, [](const auto& slot) { return slot.has_value(); });
  if (all_busy && query_value(target, "fail_on_no_slot") == "1") return error_response(no_free_slot());
  return {.body = slots_json(slots, card_)};
}

// ---- the end

void Service::on(Drain drain) {
  view_.draining = true;
  drained_ = std::move(drain.done);
  state_changed();
  tell(environment_.admission, Admission::Drain{});
  tell_after(self(), options_.drain, DrainTimeOver{});
  drained_if_idle();
}

void Service::on(DrainTimeOver) {
  if (!generations_.empty()) obs::warn("service", "stopping: {} answers are cut off", generations_.size());
  for (auto& [ticket, generation] : generations_) tell(generation, Generation::Stop{});
}

void Service::drained_if_idle() {
  if (!view_.draining || !generations_.empty() || preparing_ > 0) return;
  if (auto done = std::exchange(drained_, nullptr)) done();
}

actor::Executor& Service::next_worker() { return *workers_[next_worker_++ % workers_.size()]; }

}  // namespace strata::gateway
