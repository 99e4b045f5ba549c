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
#include <optional>
#include <utility>

#include "services/base/build_info.h"
#include "services/cli/http_parser.h"
#include "services/cli/tls_client.h"
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

Status not_cancelled(const HttpRequest& request) {
  const bool cancelled = request.cancelled != nullptr && request.cancelled->load();
  return cancelled ? fail(Code::kCancelled, "cancelled") : Status();
}

// Waits until the socket can be read or written, the request is cancelled, or nothing has happened for too
// long.
Status wait_for(int socket, short events, const HttpRequest& request) {
  auto deadline = Clock::now() + request.silence_timeout;
  while (Clock::now() < deadline) {
    TRY_OK(not_cancelled(request));
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    if (::poll(&entry, 1, kLookEveryMs) > 0) return {};
  }
  return fail(Code::kDeadlineExceeded, "no answer for {} s",
              std::chrono::duration_cast<std::chrono::seconds>(request.silence_timeout).count());
}

// A connection that a request goes out on: waits where the socket makes it wait.
class Wire {
 public:
  // request must outlive it.
  static Result<Wire> open(const Url& url, const HttpRequest& request) {
    TRY(sys::FileDescriptor socket, connect_to(url));
    Wire wire(std::move(socket), request);
    if (!url.tls) return wire;
    TRY(wire.tls_, TlsClient::create(wire.socket_.get(), url.host, url.certificate));
    TRY_OK(wire.finish([&wire] { return wire.tls_->handshake(); }).map([](std::size_t) {}));
    return wire;
  }

  Status send_all(std::string_view bytes) {
    while (!bytes.empty()) {
      TRY(const std::size_t sent, finish([&] { return tls_ ? tls_->send(bytes) : send_plain(bytes); }));
      bytes.remove_prefix(sent);
    }
    return {};
  }

  // 0: the server has ended the connection.
  Result<std::size_t> receive(char* into, std::size_t bytes_max) {
    return finish([&] { return tls_ ? tls_->receive(into, bytes_max) : receive_plain(into, bytes_max); });
  }

 private:
  Wire(sys::FileDescriptor socket, const HttpRequest& request)
      : socket_(std::move(socket)), request_(&request) {}

  template <class Step>
  Result<std::size_t> finish(Step step) {
    for (;;) {
      TRY_OK(not_cancelled(*request_));
      TRY(const TlsStep reached, step());
      if (reached.wait_for == 0) return reached.bytes;
      TRY_OK(wait_for(socket_.get(), reached.wait_for, *request_));
    }
  }

  Result<TlsStep> send_plain(std::string_view bytes) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return plain_step(sent, POLLOUT);
  }
  Result<TlsStep> receive_plain(char* into, std::size_t bytes_max) {
    return plain_step(::recv(socket_.get(), into, bytes_max, MSG_DONTWAIT), POLLIN);
  }
  static Result<TlsStep> plain_step(ssize_t count, short event) {
    if (count >= 0) return TlsStep{.bytes = static_cast<std::size_t>(count)};
    if (errno == EINTR || errno == EAGAIN) return TlsStep{.wait_for = event};
    return fail(Code::kUnavailable, "the connection broke: {}", std::strerror(errno));
  }

  sys::FileDescriptor socket_;
  const HttpRequest* request_;
  std::optional<TlsClient> tls_;  // ends before its socket
};

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
  constexpr std::string_view kPlain = "http://", kTls = "https://";
  auto wrong = [&] {
    return fail(Code::kInvalidArgument, "{}: expected http://HOST:PORT or https://HOST:PORT", text);
  };
  Url url;
  url.tls = text.starts_with(kTls);
  if (url.tls) url.port = 443;
  if (!url.tls && !text.starts_with(kPlain)) return wrong();
  std::string_view rest = std::string_view(text).substr(url.tls ? kTls.size() : kPlain.size());
  auto slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
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
  TRY(Wire wire, Wire::open(url, request));
  TRY_OK(wire.send_all(to_text(url, request)));
  HttpParser parser(on_data);
  char piece[16 << 10];
  while (!parser.complete()) {
    TRY(const std::size_t got, wire.receive(piece, sizeof piece));
    TRY_OK(got == 0 ? parser.end() : parser.feed(std::string_view(piece, got)));
  }
  return parser.take();
}

}  // namespace strata::cli
