#pragma once
// What the gateway itself counts: requests, queue, latencies, tokens, connections. Every label value exists
// from the start.

#include <map>
#include <string>
#include <string_view>

#include "services/obs/metrics.h"

namespace strata::gateway {

enum class Endpoint { kChatCompletions, kCompletions, kMessages, kResponses };
std::string_view endpoint_name(Endpoint endpoint);

enum class Outcome {
  kOk,
  kClientCancel,
  kBadRequest,
  kUnauthorized,
  kTooLong,
  kOverloaded,
  kEngineError,
  kTimeout
};
std::string_view outcome_name(Outcome outcome);

enum class FinishCause {
  kStopToken,
  kStopString,
  kLength,
  kToolCalls,
  kCancelled,
  kLoopGuard,
  kEndedInThinking,
  kError
};
std::string_view finish_cause_name(FinishCause cause);

enum class Phase { kQueued, kPrefill, kDecode };
std::string_view phase_name(Phase phase);

enum class ProtocolFault { kStaleEvent, kTokenIndex, kStateFeed };

class GatewayProbe {
 public:
  explicit GatewayProbe(obs::Metrics& metrics);

  void request_done(Endpoint endpoint, Outcome outcome);
  void finished(FinishCause cause);
  void disconnected(Phase phase);
  void response(uint32_t status);
  void protocol_fault(ProtocolFault fault);

  prometheus::Gauge& running;
  prometheus::Gauge& waiting;
  prometheus::Gauge& queue_limit;
  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& first_token_seconds;
  prometheus::Histogram& inter_token_seconds;
  prometheus::Histogram& request_seconds;
  prometheus::Histogram& cancel_seconds;
  prometheus::Gauge& connections;
  prometheus::Counter& keepalives;
  prometheus::Counter& resubmissions;
  prometheus::Counter& generated_thinking;
  prometheus::Counter& generated_answer;
  prometheus::Gauge& ready;

 private:
  std::map<std::pair<Endpoint, Outcome>, prometheus::Counter*> requests_;
  std::map<FinishCause, prometheus::Counter*> finishes_;
  std::map<Phase, prometheus::Counter*> disconnects_;
  std::map<uint32_t, prometheus::Counter*> responses_;
  std::map<ProtocolFault, prometheus::Counter*> faults_;
};

}  // namespace strata::gateway
