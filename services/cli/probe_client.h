#pragma once
// A chat client that measures: one greedy answer per call, streamed, with the time to its first token.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/cli/http_client.h"

namespace strata::cli {

struct ProbeMessage {
  std::string role, content;
};

struct ProbeRequest {
  std::vector<ProbeMessage> messages;
  uint32_t max_tokens = 1;
};

struct ProbeAnswer {
  double first_token_seconds = 0;  // from the request to the first text; to the end where no text came
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;  // of the prompt; 0 also where the server does not say
  std::string text;            // what a client sends back with the next turn
  std::string reasoning;
};

using ProbeAsk = std::function<Result<ProbeAnswer>(const ProbeRequest&)>;

// Errors: kUnavailable with the server's words; kDataLoss: an answer without usage; kCancelled.
Result<ProbeAnswer> ask_chat(const Url& url, const ProbeRequest& request, const std::atomic<bool>* cancelled);

struct ServedModel {
  std::string name;
  uint64_t context_tokens = 0;  // 0: the server does not say
};
// The first one of /v1/models.
Result<ServedModel> served_model(const Url& url, const std::atomic<bool>* cancelled);

}  // namespace strata::cli
