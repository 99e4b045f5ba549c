#pragma once
// TLS on a socket, client side, for the small HTTP client: each call does what can be done without waiting
// and says what to wait for. The socket belongs to the caller and must outlive this.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "services/base/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace strata::cli {

struct TlsStep {
  short wait_for = 0;     // POLLIN or POLLOUT, then call again with the same arguments; 0: done
  std::size_t bytes = 0;  // sent or received; received 0: the server has ended the connection
};

class TlsClient {
 public:
  // certificate: a PEM file; the server must show the first one in it, whatever names stand there. Empty: one
  // for this host that an authority of the system vouches for (SSL_CERT_FILE names others).
  // Errors: kInvalidArgument, kNotFound (no certificate in the file), kInternal (OpenSSL cannot be set up).
  static Result<TlsClient> create(int socket, const std::string& host, const std::string& certificate);

  // Errors: kPermissionDenied (the server's certificate is not to be trusted; the message says why),
  // kUnavailable (the connection broke, or no TLS is spoken there).
  Result<TlsStep> handshake();
  Result<TlsStep> send(std::string_view bytes);  // may send a part
  Result<TlsStep> receive(char* into, std::size_t bytes_max);

 private:
  TlsClient() = default;
  struct Release {
    void operator()(ssl_ctx_st* context) const;
    void operator()(ssl_st* session) const;
  };

  Result<TlsStep> step(int returned, std::size_t bytes);
  Status check_certificate() const;

  std::unique_ptr<ssl_ctx_st, Release> context_;
  std::unique_ptr<ssl_st, Release> session_;
  std::string certificate_;  // the file's path; empty: none
};

}  // namespace strata::cli
