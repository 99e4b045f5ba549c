#include "services/cli/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "services/base/build_info.h"
#include "services/cli/http_parser.h"
#include "services/sys/process.h"

namespace strata::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookEveryMs = 100;  // at the cancel flag

Result<sys::FileDescriptor> connect_to(const Url& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::string port = fmt::format("{}", url.port);
  if (int error = ::getaddrinfo(url.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return fail(Code::kUnavailable, "{}: {}", url.host, ::gai_strerror(error));
  }
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  int last_error = 0;
  for (addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    sys::FileDescriptor socket(
        ::socket(entry->ai_family, entry->ai_socktype | SOCK_CLOEXEC, entry->ai_protocol));
    if (socket.valid() && ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0) {
      int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return socket;
    }
    last_error = errno;
  }
  return fail(Code::kUnavailable, "{}:{}: {}", url.host, url.port, std::strerror(last_error));
}

// Waits until the socket can be read or written, the request is cancelled, or nothing has happened for too
// long.
Status wait_for(int socket, short events, const HttpRequest& request) {
  auto deadline = Clock::now() + request.silence_timeout;
  while (Clock::now() < deadline) {
    if (request.cancelled != nullptr && request.cancelled->load()) return fail(Code::kCancelled, "cancelled");
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    if (::poll(&entry, 1, kLookEveryMs) > 0) return {};
  }
  return fail(Code::kDeadlineExceeded, "no answer for {} s",
              std::chrono::duration_cast<std::chrono::seconds>(request.silence_timeout).count());
}

Status send_all(int socket, std::string_view bytes, const HttpRequest& request) {
  while (!bytes.empty()) {
    TRY_OK(wait_for(socket, POLLOUT, request));
    ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return fail(Code::kUnavailable, "the connection broke: {}", std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

std::string to_text(const Url& url, const HttpRequest& request) {
  bool ipv6 = url.host.find(':') != std::string::npos;
  std::string text = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: strata/{}\r\nConnection: close\r\n", request.method,
      url.path, request.path, ipv6 ? "[" + url.host + "]" : url.host, url.port, version());
  if (!request.body.empty()) {
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", request.body.size());
  }
  return text + "\r\n" + request.body;
}

}  // namespace

Result<Url> parse_url(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  auto wrong = [&] { return fail(Code::kInvalidArgument, "{}: expected http://HOST:PORT", text); };
  if (!text.starts_with(kScheme)) return wrong();
  std::string_view rest = std::string_view(text).substr(kScheme.size());
  auto slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  Url url;
  if (slash != std::string_view::npos) url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  // The base URL of an OpenAI client ends in /v1; requests here name it themselves.
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  auto colon = authority.rfind(':');
  auto bracket = authority.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    std::string_view digits = authority.substr(colon + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc() || end != digits.data() + digits.size()) return wrong();
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']'))
    authority = authority.substr(1, authority.size() - 2);
  url.host = authority;
  if (url.host.empty()) return wrong();
  return url;
}

Result<HttpResponse> http_request(const Url& url, const HttpRequest& request, const OnData& on_data) {
  TRY(sys::FileDescriptor socket, connect_to(url));
  TRY_OK(send_all(socket.get(), to_text(url, request), request));
  HttpParser parser(on_data);
  char piece[16 << 10];
  while (!parser.complete()) {
    TRY_OK(wait_for(socket.get(), POLLIN, request));
    ssize_t got = ::recv(socket.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return fail(Code::kUnavailable, "the connection broke: {}", std::strerror(errno));
    TRY_OK(got == 0 ? parser.end() : parser.feed(std::string_view(piece, static_cast<std::size_t>(got))));
  }
  return parser.take();
}

}  // namespace strata::cli
