#pragma once
// The HTTP side of the gateway: one thread that accepts connections, reads requests and sends what the
// exchanges hold. Everything that touches an exchange runs on this thread; its executor is where the
// gateway's actors live.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gateway/http/exchange.h"
#include "gateway/http/tls_certificate.h"
#include "gateway/metrics/gateway_probe.h"
#include "services/actor/actor.h"
#include "services/base/status.h"

namespace strata::gateway {

struct HttpOptions {
  std::size_t connections_max = 4096;  // one more is closed at once
  std::size_t body_bytes_max = std::size_t{16} << 20;
  std::chrono::milliseconds idle_timeout{75'000};       // between two requests of a connection
  std::chrono::milliseconds request_timeout{60'000};    // from a request's first byte to its last
  std::chrono::milliseconds write_timeout{30'000};      // for a client to take 64 KiB
  std::shared_ptr<TlsCertificate> tls = {};             // nullptr: plain http
  std::chrono::milliseconds handshake_timeout{10'000};  // of TLS, from the connection's begin
};

// Who answers. Both are called on the HTTP thread.
struct HttpHandlers {
  // Of every request, when its header is there and its body is not: a refusal spares the body. It is sent,
  // and serve() is not called.
  std::function<std::optional<HttpResponse>(Exchange&)> screen;
  std::function<void(std::shared_ptr<Exchange>)> serve;
};

class HttpServer {
 public:
  // probe must outlive the server.
  HttpServer(HttpOptions options, GatewayProbe& probe);
  ~HttpServer();

  std::shared_ptr<actor::Executor> executor() const;

  // Starts to accept; the result is "http://127.0.0.1:8080" (https with TLS) with the port that was really
  // taken. Errors name the address: kInvalidArgument (no such address), kAlreadyExists (in use),
  // kPermissionDenied.
  Result<std::string> listen(const std::string& address, HttpHandlers handlers);

  // No new connections; those that are sending get `grace` to finish; then the thread ends.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace strata::gateway
