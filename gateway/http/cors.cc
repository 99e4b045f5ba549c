#include "gateway/http/cors.h"

#include <algorithm>

namespace strata::gateway {

namespace {

// Whether a path takes the method is said by the request's own answer.
constexpr const char* kMethods = "GET, HEAD, POST, DELETE, OPTIONS";
// Two hours, the most that Chromium heeds; a removed origin loses its access with the gateway's restart
// anyway, for its requests are refused then.
constexpr const char* kMaxAgeSeconds = "7200";
// Of our own headers, those that a page may read.
constexpr const char* kExposed =
    "X-Request-Id, Retry-After, X-Strata-Sampling, X-Strata-Reuse, X-Strata-Ignored-Tools";

}  // namespace

bool Cors::allows(const std::string& origin) const {
  return std::ranges::find(origins_, origin) != origins_.end();
}

bool Cors::allows_sender(const HttpRequest& request) const {
  const std::string* origin = request.header("origin");
  return origin != nullptr && allows(*origin);
}

Cors::Headers Cors::response_headers(const HttpRequest& request) const {
  if (origins_.empty()) return {};
  // Also for those who get nothing: a cache must not show their answer to others.
  Headers headers{{"Vary", "Origin"}};
  if (!allows_sender(request)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", *request.header("origin"));
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  return headers;
}

Cors::Headers Cors::preflight_headers(const HttpRequest& request) const {
  if (!allows_sender(request) || request.header("access-control-request-method") == nullptr) return {};
  Headers headers{{"Access-Control-Allow-Methods", kMethods}, {"Access-Control-Max-Age", kMaxAgeSeconds}};
  // No list of our own: SDKs send headers that change with their versions. A header's value as it was read
  // holds no line end, so it can be sent.
  if (const std::string* wanted = request.header("access-control-request-headers")) {
    headers.emplace_back("Access-Control-Allow-Headers", *wanted);
  }
  return headers;
}

}  // namespace strata::gateway
