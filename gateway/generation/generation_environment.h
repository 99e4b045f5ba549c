#pragma once
// What all generations share.

#include <chrono>
#include <cstddef>
#include <memory>

#include "gateway/admission/admission.h"
#include "gateway/engine/engine_client.h"
#include "gateway/index/conversation_index.h"
#include "gateway/metrics/gateway_probe.h"
#include "gateway/request_log/request_log.h"
#include "gateway/responses/response_keeper.h"
#include "services/tokenizer/tokenizer.h"

namespace strata::gateway {

struct GenerationLimits {
  std::chrono::milliseconds keepalive{5000};
  std::chrono::milliseconds loading_wait{
      600'000};  // for an engine that has not been ready yet, and in the queue
  std::chrono::milliseconds engine_wait{60'000};  // for an engine that went away under a running answer
  std::size_t backlog_bytes_max = std::size_t{1} << 20;  // that a client may be behind
};

// What is kept of prompts for others to come.
struct ReuseOptions {
  CheckpointOptions checkpoints;
  bool share_roots = false;  // system prompt and tools are for all namespaces
};

// Outlives the generations.
struct GenerationEnvironment {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  EngineClient* engine = nullptr;
  GatewayProbe* probe = nullptr;
  ConversationProbe* conversations = nullptr;
  std::shared_ptr<Admission> admission;
  // The last one that was given to anybody: requests and their further answers. The first is 1.
  std::shared_ptr<TicketId> last_ticket = std::make_shared<TicketId>(0);
  std::shared_ptr<ConversationIndex> index;
  RequestLog* request_log = nullptr;            // nullptr: none is kept
  std::shared_ptr<ResponseKeeper> keeper = {};  // nullptr: responses are not stored
  GenerationLimits limits;
  ReuseOptions reuse;
};

}  // namespace strata::gateway
