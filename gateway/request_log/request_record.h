#pragma once
// What the request log keeps of one request of a generating endpoint. Pure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gateway/generation/answer_format.h"
#include "gateway/metrics/gateway_probe.h"

namespace strata::gateway {

// What was said, only where gateway.request_log_content asks for it.
struct RequestContent {
  std::string request = {};               // the body as it came
  std::vector<std::string> answers = {};  // of each choice the text of all its tokens, special ones too
};

struct RequestRecord {
  std::chrono::system_clock::time_point ended;
  std::string request_id = {};
  Endpoint endpoint = Endpoint::kChatCompletions;
  std::string key_hash = {};  // "sha256:HEX", of which the beginning is written. Empty: no key was wanted
  Outcome outcome = Outcome::kOk;
  uint32_t status = 0;                                // of HTTP; 0: the client left before it had any
  std::optional<std::chrono::nanoseconds> took = {};  // none: it was refused before it began to wait
  Usage usage = {};
  std::string reuse = {};  // ReuseReport::header_text() of each prompt; empty: the engine never began
  std::optional<RequestContent> content = {};
};

// One line of JSON with its line break. Members: docs/api.md, "The request log".
std::string to_line(const RequestRecord& record);

}  // namespace strata::gateway
