#include "gateway/http/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gateway/http/routes.h"

namespace strata::gateway {

namespace {

std::string_view reason_phrase(uint32_t status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  auto found =
      std::ranges::find(headers, name, [](const auto& header) { return std::string_view(header.first); });
  return found == headers.end() ? nullptr : &found->second;
}

std::string format_head(const HttpRequest& request, const HttpResponse& response, std::string_view framing,
                        bool close) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  auto to = std::back_inserter(out);
  if (!response.content_type.empty()) fmt::format_to(to, "Content-Type: {}\r\n", response.content_type);
  fmt::format_to(to, "X-Request-Id: {}\r\n", request.id);
  // Each dialect's clients show the id in their errors, under their own name.
  if (dialect_of(request.target) == Dialect::kAnthropic) fmt::format_to(to, "Request-Id: {}\r\n", request.id);
  for (const auto& [name, value] : response.headers) fmt::format_to(to, "{}: {}\r\n", name, value);
  out += framing;
  if (close) {
    out += "Connection: close\r\n";
  } else if (request.http_1_0) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

HttpResponse error_response(const ApiError& error, Dialect dialect) {
  HttpResponse response{.status = error.status, .body = error_json(error, dialect)};
  if (error.retry_after_s) response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
  return response;
}

std::string header_safe(std::string_view text) {
  std::string out(text.substr(0, 256));
  std::ranges::replace_if(out, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return out;
}

}  // namespace strata::gateway
