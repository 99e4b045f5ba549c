#pragma once
// A RawClient that speaks TLS, and is asked how the other side did.

#include <memory>
#include <string>

#include "gateway/testing/raw_client.h"

struct ssl_ctx_st;
struct ssl_st;

namespace strata::gateway::testing {

struct TlsOptions {
  std::string trusted = {};    // a PEM file: the server must show a certificate that it vouches for
  int version_max = 0;         // TLS1_1_VERSION, ...; 0: any
  std::string protocols = {};  // of ALPN, as on the wire: "\x02h2\x08http/1.1"
};

class TlsRawClient final : public RawClient {
 public:
  TlsRawClient(uint16_t port, const TlsOptions& options);
  ~TlsRawClient() override;

  bool connected() const { return connected_; }
  std::string version() const;   // "TLSv1.3"
  std::string protocol() const;  // that ALPN came to; empty: none
  // After the end: the server has said that nothing was cut off.
  bool heard_goodbye() const;
  void say_goodbye();

 private:
  ssize_t send_some(std::string_view bytes) override;
  ssize_t receive_some(char* into, std::size_t bytes_max) override;
  bool holds_received() const override;

  struct Release {
    void operator()(ssl_ctx_st* context) const;
    void operator()(ssl_st* session) const;
  };
  std::unique_ptr<ssl_ctx_st, Release> context_;
  std::unique_ptr<ssl_st, Release> session_;
  bool connected_ = false;
};

}  // namespace strata::gateway::testing
