#pragma once
// What the HTTP side needs to speak TLS: the certificate with its chain, and its key. Read once: a renewed
// certificate is used after a restart of the gateway.
//
// TLS 1.2 and 1.3, no renegotiation, http/1.1 where a client asks by ALPN. Which ciphers: what OpenSSL's own
// configuration says.

#include <chrono>
#include <memory>
#include <string>

#include "services/base/status.h"

namespace boost::asio::ssl {
class context;
}

namespace strata::gateway {

class TlsCertificate {
 public:
  // The values of gateway.tls_certificate and gateway.tls_key. Errors name setting, file and reason:
  // kInvalidArgument (one without the other, no PEM, a passphrase, a key of another certificate), kNotFound,
  // kPermissionDenied (unreadable, or a key that everybody may read or write).
  static Result<std::shared_ptr<TlsCertificate>> load(const std::string& certificate_path,
                                                      const std::string& key_path);
  ~TlsCertificate();
  TlsCertificate(const TlsCertificate&) = delete;
  TlsCertificate& operator=(const TlsCertificate&) = delete;

  // Shared by all connections.
  boost::asio::ssl::context& context() { return *context_; }
  std::chrono::system_clock::time_point valid_from() const { return valid_from_; }
  std::chrono::system_clock::time_point valid_until() const { return valid_until_; }

 private:
  TlsCertificate();
  std::unique_ptr<boost::asio::ssl::context> context_;
  std::chrono::system_clock::time_point valid_from_, valid_until_;
};

}  // namespace strata::gateway
