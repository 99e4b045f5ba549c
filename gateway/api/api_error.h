#pragma once
// What a client is told when a request cannot be served: an HTTP status and the error object of its dialect,
// OpenAI's {"error":{"message","type","param","code"}} or Anthropic's {"type":"error","error":{"type",
// "message"}} (api-cases, rule B31). The text never holds raw input beyond an escaped snippet.

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace strata::gateway {

enum class Dialect : uint8_t { kOpenAi, kAnthropic };

struct ApiError {
  uint32_t status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::optional<std::string> param = {};
  std::optional<std::string> code = {};
  std::optional<uint32_t> retry_after_s = {};  // becomes the Retry-After header
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

ApiError invalid_request(std::string message, std::optional<std::string> param = {});
ApiError not_found(std::string message, std::string code);
ApiError overloaded(uint32_t waiting, uint32_t retry_after_s);
ApiError too_many_of_key(uint32_t limit, uint32_t retry_after_s);
ApiError context_exceeded(uint64_t prompt_tokens, uint64_t context_tokens);
ApiError model_loading(double progress);
ApiError engine_away();
ApiError waited_too_long();
ApiError no_free_slot();
// Its own time is over and nothing of the answer is there.
ApiError deadline_passed(int64_t timeout_ms);
ApiError engine_failed(std::string message);
ApiError shutting_down();

// The body of the response; the same object goes into a stream that has already begun.
std::string error_json(const ApiError& error, Dialect dialect);

}  // namespace strata::gateway
