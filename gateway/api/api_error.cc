#include "gateway/api/api_error.h"

#include <fmt/format.h>

#include "gateway/api/json_text.h"

namespace strata::gateway {

ApiError invalid_request(std::string message, std::optional<std::string> param) {
  return {.message = std::move(message), .param = std::move(param)};
}

ApiError not_found(std::string message, std::string code) {
  return {.status = 404, .message = std::move(message), .code = std::move(code)};
}

ApiError overloaded(uint32_t waiting, uint32_t retry_after_s) {
  return {.status = 429,
          .type = "rate_limit_error",
          .message =
              fmt::format("all sequences are in use and {} requests wait already; try again later", waiting),
          .code = "queue_full",
          .retry_after_s = retry_after_s};
}

ApiError too_many_of_key(uint32_t limit, uint32_t retry_after_s) {
  return {.status = 429,
          .type = "rate_limit_error",
          .message = fmt::format(
              "{} requests of this API key run or wait already, which is its limit; try again later", limit),
          .code = "key_limit",
          .retry_after_s = retry_after_s};
}

ApiError context_exceeded(uint64_t prompt_tokens, uint64_t context_tokens) {
  return {.message = fmt::format(
              "the prompt has {} tokens and the context holds {}, of which the answer needs at least one",
              prompt_tokens, context_tokens),
          .code = "context_length_exceeded"};
}

ApiError model_loading(double progress) {
  return {.status = 503,
          .type = "server_error",
          .message = fmt::format("the model is being loaded ({:.0f}%)", progress * 100),
          .code = "model_loading",
          .retry_after_s = 2};
}

ApiError engine_away() {
  return {.status = 503,
          .type = "server_error",
          .message = "the engine is restarting",
          .code = "engine_unavailable",
          .retry_after_s = 2};
}

ApiError waited_too_long() {
  return {.status = 503,
          .type = "server_error",
          .message = "no sequence became free in time; try again later",
          .code = "timeout",
          .retry_after_s = 10};
}

ApiError no_free_slot() {
  return {.status = 503,
          .type = "server_error",
          .message = "all sequences are in use",
          .code = "no_slot",
          .retry_after_s = 1};
}

ApiError deadline_passed(int64_t timeout_ms) {
  return {
      .status = 504,
      .type = "server_error",
      .message = fmt::format("the answer had not begun within the {} ms that the request allows", timeout_ms),
      .code = "deadline_exceeded"};
}

ApiError engine_failed(std::string message) {
  return {.status = 500, .type = "server_error", .message = std::move(message), .code = "engine_error"};
}

ApiError shutting_down() {
  return {.status = 503,
          .type = "server_error",
          .message = "the server is shutting down",
          .code = "shutting_down",
          .retry_after_s = 5};
}

namespace {

// Anthropic names its errors by what the client can do about them.
std::string_view anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return error.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string anthropic_error_json(const ApiError& error) {
  boost::json::object detail, body;
  detail["type"] = anthropic_type(error);
  detail["message"] = error.message;
  body["type"] = "error";
  body["error"] = std::move(detail);
  return to_json(body);
}

}  // namespace

std::string error_json(const ApiError& error, Dialect dialect) {
  if (dialect == Dialect::kAnthropic) return anthropic_error_json(error);
  boost::json::object detail;
  detail["message"] = error.message;
  detail["type"] = error.type;
  detail["param"] = error.param ? boost::json::value(*error.param) : boost::json::value(nullptr);
  detail["code"] = error.code ? boost::json::value(*error.code) : boost::json::value(nullptr);
  boost::json::object body;
  body["error"] = std::move(detail);
  return to_json(body);
}

}  // namespace strata::gateway
