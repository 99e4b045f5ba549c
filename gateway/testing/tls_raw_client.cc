#include "gateway/testing/tls_raw_client.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <csignal>

namespace strata::gateway::testing {

void TlsRawClient::Release::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void TlsRawClient::Release::operator()(ssl_st* session) const { SSL_free(session); }

TlsRawClient::TlsRawClient(uint16_t port, const TlsOptions& options)
    : RawClient(port), context_(SSL_CTX_new(TLS_client_method())) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that are closed
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (!options.trusted.empty()) {
    EXPECT_EQ(SSL_CTX_load_verify_file(context_.get(), options.trusted.c_str()), 1);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  }
  if (options.version_max != 0) {
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), 0);
    SSL_CTX_set_max_proto_version(context_.get(), options.version_max);
  }
  session_.reset(SSL_new(context_.get()));
  if (!options.protocols.empty()) {
    SSL_set_alpn_protos(session_.get(), reinterpret_cast<const unsigned char*>(options.protocols.data()),
                        static_cast<unsigned>(options.protocols.size()));
  }
  SSL_set1_host(session_.get(), "localhost");
  SSL_set_fd(session_.get(), socket());
  connected_ = SSL_connect(session_.get()) == 1;
}

TlsRawClient::~TlsRawClient() = default;

std::string TlsRawClient::version() const { return SSL_get_version(session_.get()); }

std::string TlsRawClient::protocol() const {
  const unsigned char* chosen = nullptr;
  unsigned bytes = 0;
  SSL_get0_alpn_selected(session_.get(), &chosen, &bytes);
  return {reinterpret_cast<const char*>(chosen), bytes};
}

bool TlsRawClient::heard_goodbye() const {
  return (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

void TlsRawClient::say_goodbye() { SSL_shutdown(session_.get()); }

ssize_t TlsRawClient::send_some(std::string_view bytes) {
  return SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
}

ssize_t TlsRawClient::receive_some(char* into, std::size_t bytes_max) {
  return SSL_read(session_.get(), into, static_cast<int>(bytes_max));
}

bool TlsRawClient::holds_received() const { return SSL_pending(session_.get()) > 0; }

}  // namespace strata::gateway::testing
