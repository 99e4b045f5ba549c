#include "gateway/metrics/gateway_probe.h"

#include "services/base/check.h"

namespace strata::gateway {

namespace {

constexpr Endpoint kEndpoints[] = {Endpoint::kChatCompletions, Endpoint::kCompletions, Endpoint::kMessages,
                                   Endpoint::kResponses};
constexpr Outcome kOutcomes[] = {Outcome::kOk,           Outcome::kClientCancel, Outcome::kBadRequest,
                                 Outcome::kUnauthorized, Outcome::kTooLong,      Outcome::kOverloaded,
                                 Outcome::kEngineError,  Outcome::kTimeout};
constexpr FinishCause kCauses[] = {
    FinishCause::kStopToken, FinishCause::kStopString, FinishCause::kLength,          FinishCause::kToolCalls,
    FinishCause::kCancelled, FinishCause::kLoopGuard,  FinishCause::kEndedInThinking, FinishCause::kError};
constexpr Phase kPhases[] = {Phase::kQueued, Phase::kPrefill, Phase::kDecode};
// Every status that the gateway answers with.
constexpr uint32_t kStatuses[] = {200, 204, 400, 401, 403, 404, 405, 408,
                                  413, 415, 429, 431, 500, 501, 503, 504};

}  // namespace

std::string_view endpoint_name(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChatCompletions:
      return "chat_completions";
    case Endpoint::kCompletions:
      return "completions";
    case Endpoint::kMessages:
      return "messages";
    case Endpoint::kResponses:
      return "responses";
  }
  return "";
}

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kClientCancel:
      return "client_cancel";
    case Outcome::kBadRequest:
      return "bad_request";
    case Outcome::kUnauthorized:
      return "unauthorized";
    case Outcome::kTooLong:
      return "too_long";
    case Outcome::kOverloaded:
      return "overloaded";
    case Outcome::kEngineError:
      return "engine_error";
    case Outcome::kTimeout:
      return "timeout";
  }
  return "";
}

std::string_view finish_cause_name(FinishCause cause) {
  switch (cause) {
    case FinishCause::kStopToken:
      return "stop_token";
    case FinishCause::kStopString:
      return "stop_string";
    case FinishCause::kLength:
      return "length";
    case FinishCause::kToolCalls:
      return "tool_calls";
    case FinishCause::kCancelled:
      return "cancelled";
    case FinishCause::kLoopGuard:
      return "loop_guard";
    case FinishCause::kEndedInThinking:
      return "ended_in_thinking";
    case FinishCause::kError:
      return "error";
  }
  return "";
}

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kQueued:
      return "queued";
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      return "decode";
  }
  return "";
}

GatewayProbe::GatewayProbe(obs::Metrics& metrics)
    : running(metrics.gauge("strata_requests_running", "Requests that hold a sequence of the engine.")),
      waiting(metrics.gauge("strata_requests_waiting",
                            "Requests in the queue; more than a few for long: the engine is too small.",
                            {{"class", "default"}})),
      queue_limit(metrics.gauge("strata_queue_limit", "Requests that may wait; one more gets 429.")),
      queue_seconds(
          metrics.latency("strata_request_queue_seconds", "Time that requests waited for a sequence.")),
      first_token_seconds(metrics.latency("strata_time_to_first_token_seconds",
                                          "From the request's arrival to its first token.")),
      inter_token_seconds(
          metrics.latency("strata_inter_token_seconds", "Time between two tokens of an answer.")),
      request_seconds(metrics.latency("strata_request_seconds", "Whole requests that were answered.")),
      cancel_seconds(metrics.latency("strata_cancel_latency_seconds",
                                     "From a client's leaving to the end of its engine call.")),
      connections(metrics.gauge("strata_http_connections", "Open HTTP connections.")),
      keepalives(metrics.counter("strata_sse_keepalives_total", "Comments sent on silent streams.")),
      resubmissions(
          metrics.counter("strata_request_resubmissions_total",
                          "Answers that were continued after the engine restarted in the middle of them.")),
      generated_thinking(
          metrics.counter("strata_generated_tokens_total", "Generated tokens.", {{"kind", "thinking"}})),
      generated_answer(
          metrics.counter("strata_generated_tokens_total", "Generated tokens.", {{"kind", "answer"}})),
      ready(metrics.gauge("strata_ready", "1 when a request would be served, as /ready says.")) {
  for (Endpoint endpoint : kEndpoints) {
    for (Outcome outcome : kOutcomes) {
      requests_[{endpoint, outcome}] =
          &metrics.counter("strata_requests_total", "Requests by how they ended.",
                           {{"endpoint", std::string(endpoint_name(endpoint))},
                            {"outcome", std::string(outcome_name(outcome))}});
    }
  }
  for (FinishCause cause : kCauses) {
    finishes_[cause] = &metrics.counter("strata_finish_total", "Answers by what ended them.",
                                        {{"reason", std::string(finish_cause_name(cause))}});
  }
  for (Phase phase : kPhases) {
    disconnects_[phase] = &metrics.counter("strata_client_disconnects_total",
                                           "Clients that left before their answer was complete.",
                                           {{"phase", std::string(phase_name(phase))}});
  }
  for (uint32_t status : kStatuses) {
    responses_[status] = &metrics.counter("strata_http_responses_total", "HTTP responses by status.",
                                          {{"code", std::to_string(status)}});
  }
  metrics.counter("strata_generated_tokens_total", "Generated tokens.", {{"kind", "tool"}});
  auto fault = [&metrics](const char* kind) {
    return &metrics.counter("strata_protocol_errors_total",
                            "Messages of a peer that broke the protocol; any is a bug.", {{"kind", kind}});
  };
  faults_ = {{ProtocolFault::kStaleEvent, fault("stale_event")},
             {ProtocolFault::kTokenIndex, fault("token_index")},
             {ProtocolFault::kStateFeed, fault("state_feed")}};
}

void GatewayProbe::request_done(Endpoint endpoint, Outcome outcome) {
  requests_.at({endpoint, outcome})->Increment();
}
void GatewayProbe::finished(FinishCause cause) { finishes_.at(cause)->Increment(); }
void GatewayProbe::disconnected(Phase phase) { disconnects_.at(phase)->Increment(); }
void GatewayProbe::protocol_fault(ProtocolFault fault) { faults_.at(fault)->Increment(); }

void GatewayProbe::response(uint32_t status) {
  auto found = responses_.find(status);
  CHECK(found != responses_.end(), "status {} is not in the list of statuses", status);
  found->second->Increment();
}

}  // namespace strata::gateway
