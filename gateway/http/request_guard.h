#pragma once
// Who may call (rules I1, I2): no web page of somebody else, no page that made its host name point at this
// machine. And in which form.

#include <optional>
#include <string>

#include "gateway/api/api_error.h"
#include "gateway/http/cors.h"
#include "gateway/http/http_message.h"

namespace strata::gateway {

// "127.0.0.1:8080", "[::1]:0", "localhost:80" in two parts.
struct ListenAddress {
  std::string host = {};  // without brackets
  uint16_t port = 0;
};
std::optional<ListenAddress> parse_listen(std::string_view text);

// localhost, ::1 and 127/8: nobody on another machine reaches them.
bool is_loopback(std::string_view host);

class RequestGuard {
 public:
  // listen_host: as configured. Bound to this machine alone, the Host header must name this machine.
  // cors: pages that may send requests beside our own. scheme: of our own, "http" or "https".
  explicit RequestGuard(std::string listen_host, Cors cors = Cors({}), std::string scheme = "http");

  // Who calls, before anybody looks at the path.
  std::optional<ApiError> check(const HttpRequest& request) const;
  // In which form the body comes, once the path is known to take one.
  std::optional<ApiError> check_body_form(const HttpRequest& request) const;

 private:
  std::optional<ApiError> check_host(const HttpRequest& request) const;
  std::optional<ApiError> check_origin(const HttpRequest& request) const;
  bool is_own_name(const std::string& host) const;

  std::string listen_host_;
  Cors cors_;
  std::string scheme_;
  bool loopback_only_ = false;
};

}  // namespace strata::gateway
