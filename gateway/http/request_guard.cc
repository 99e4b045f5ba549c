#include "gateway/http/request_guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// The host of "host:port", "[v6]:port" or either without the port; brackets removed.
std::string host_of(std::string_view authority) {
  if (authority.starts_with('[')) return std::string(authority.substr(1, authority.find(']') - 1));
  return std::string(authority.substr(0, authority.find(':')));
}

bool is_address(const std::string& host) {
  in6_addr room;
  return inet_pton(AF_INET, host.c_str(), &room) == 1 || inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? lower(name) : std::string();
}

// "Application/JSON; charset=utf-8" -> "application/json"
std::string media_type(std::string_view value) {
  std::string type = lower(value.substr(0, value.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return type;
}

ApiError forbidden(std::string message) {
  return {.status = 403, .type = "permission_error", .message = std::move(message), .code = "forbidden"};
}

ApiError unsupported_media(std::string message) {
  ApiError error{.status = 415, .message = std::move(message)};
  error.code = "unsupported_media_type";
  return error;
}

}  // namespace

std::optional<ListenAddress> parse_listen(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  if (host.starts_with('[') != host.ends_with(']')) return {};
  ListenAddress address{.host = host.starts_with('[') ? std::string(host.substr(1, host.size() - 2))
                                                      : std::string(host)};
  auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (address.host.empty() || parsed.ec != std::errc() || parsed.ptr != port.data() + port.size()) return {};
  return address;
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  // The whole of 127/8, but no name that only begins like it.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

RequestGuard::RequestGuard(std::string listen_host, Cors cors, std::string scheme)
    : listen_host_(lower(listen_host)),
      cors_(std::move(cors)),
      scheme_(std::move(scheme)),
      loopback_only_(is_loopback(listen_host_)) {}

std::optional<ApiError> RequestGuard::check(const HttpRequest& request) const {
  if (auto error = check_host(request)) return error;
  if (request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS") return {};
  return check_origin(request);
}

std::optional<ApiError> RequestGuard::check_host(const HttpRequest& request) const {
  const auto hosts =
      std::ranges::count(request.headers, "host", [](const auto& header) { return header.first; });
  if (hosts > 1 || (hosts == 0 && !request.http_1_0))
    return invalid_request("the request needs exactly one Host header");
  if (hosts == 0 || !loopback_only_) return {};
  const std::string host = lower(host_of(*request.header("host")));
  if (is_loopback(host) || host == listen_host_) return {};
  return forbidden(fmt::format("the Host header {} does not name this server", snippet(host)));
}

bool RequestGuard::is_own_name(const std::string& host) const {
  return is_loopback(host) || host == listen_host_ || is_address(host) || host == host_name();
}

// A browser sends Origin with everything but plain page loads; programs do not.
std::optional<ApiError> RequestGuard::check_origin(const HttpRequest& request) const {
  const std::string* origin = request.header("origin");
  if (origin == nullptr || cors_.allows(*origin)) return {};
  const std::string* host = request.header("host");
  // Its own page, unless the page's name was pointed here by somebody else: behind an address that others can
  // reach, only names that nobody else can hand out count as ours.
  if (host != nullptr && lower(*origin) == scheme_ + "://" + lower(*host) &&
      is_own_name(lower(host_of(*host)))) {
    return {};
  }
  return forbidden(fmt::format("requests from the web page {} are not allowed", snippet(*origin)));
}

std::optional<ApiError> RequestGuard::check_body_form(const HttpRequest& request) const {
  if (const std::string* encoding = request.header("content-encoding");
      encoding != nullptr && lower(*encoding) != "identity") {
    return unsupported_media(fmt::format("Content-Encoding {} is not supported", snippet(*encoding)));
  }
  const std::string* value = request.header("content-type");
  const std::string type = value == nullptr ? std::string() : media_type(*value);
  if (type == "application/json") return {};
  // What curl sends when nobody says otherwise. From a page only JSON will do: a form needs no permission to
  // be sent.
  const bool plain_client = type.empty() || type == "application/x-www-form-urlencoded";
  if (plain_client && request.header("origin") == nullptr) return {};
  return unsupported_media(fmt::format("Content-Type must be application/json, got {}", snippet(type)));
}

}  // namespace strata::gateway
