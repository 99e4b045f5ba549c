#include "services/cli/tls_client.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "services/sys/errno_status.h"

namespace strata::cli {

namespace {

template <auto release>
struct Free {
  void operator()(auto* object) const { release(object); }
};
using Certificate = std::unique_ptr<X509, Free<X509_free>>;

std::string ssl_reason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "unknown fault" : reason;
}

// ---- the socket under OpenSSL. Its own kind would raise SIGPIPE, and block.

int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))); }

bool try_again() { return errno == EINTR || errno == EAGAIN; }

int write_to_socket(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      ::send(socket_of(bio), bytes, static_cast<std::size_t>(count), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && try_again()) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_from_socket(BIO* bio, char* into, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(socket_of(bio), into, static_cast<std::size_t>(count), MSG_DONTWAIT);
  if (got < 0 && try_again()) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long control_socket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO* socket_bio(int socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without signals");
    BIO_meth_set_write(made, write_to_socket);
    BIO_meth_set_read(made, read_from_socket);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  BIO* bio = BIO_new(method);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
  BIO_set_init(bio, 1);
  return bio;
}

// ----

Result<Certificate> read_certificate(const std::string& path) {
  const std::unique_ptr<std::FILE, Free<std::fclose>> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) {
    const int error = errno;
    return fail(sys::errno_code(error), "{}: {}", path, std::strerror(error));
  }
  Certificate certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr)
    return fail(Code::kInvalidArgument, "{}: holds no certificate in PEM ({})", path, ssl_reason());
  return certificate;
}

bool is_address(const std::string& host) {
  in6_addr room;
  return ::inet_pton(AF_INET, host.c_str(), &room) == 1 || ::inet_pton(AF_INET6, host.c_str(), &room) == 1;
}

bool expect_host(SSL* session, const std::string& host) {
  if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) == 1;
  // SSL_set_tlsext_host_name(), whose macro is C.
  char* name = const_cast<char*>(host.c_str());
  return SSL_set1_host(session, host.c_str()) == 1 &&
         SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name) == 1;
}

}  // namespace

void TlsClient::Release::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void TlsClient::Release::operator()(ssl_st* session) const { SSL_free(session); }

Result<TlsClient> TlsClient::create(int socket, const std::string& host, const std::string& certificate) {
  TlsClient client;
  client.certificate_ = certificate;
  client.context_.reset(SSL_CTX_new(TLS_client_method()));
  if (client.context_ == nullptr) return fail(Code::kInternal, "TLS: {}", ssl_reason());
  SSL_CTX_set_min_proto_version(client.context_.get(), TLS1_2_VERSION);
  // The commands read what comes into whatever room they have.
  SSL_CTX_set_mode(client.context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  client.session_.reset(SSL_new(client.context_.get()));
  if (client.session_ == nullptr) return fail(Code::kInternal, "TLS: {}", ssl_reason());
  SSL* session = client.session_.get();
  if (certificate.empty()) {
    SSL_CTX_set_default_verify_paths(client.context_.get());
    SSL_set_verify(session, SSL_VERIFY_PEER, nullptr);
    if (!expect_host(session, host)) return fail(Code::kInvalidArgument, "{}: is no host name", host);
  } else {
    TRY_OK(read_certificate(certificate).map([](const auto&) {}));  // before the connection is used
  }
  BIO* bio = socket_bio(socket);
  SSL_set_bio(session, bio, bio);
  SSL_set_connect_state(session);
  return client;
}

Result<TlsStep> TlsClient::handshake() {
  ERR_clear_error();
  const int returned = SSL_do_handshake(session_.get());
  const long verdict = SSL_get_verify_result(session_.get());
  if (returned <= 0 && certificate_.empty() && verdict != X509_V_OK) {
    return fail(Code::kPermissionDenied, "the server's certificate is not trusted: {}",
                X509_verify_cert_error_string(verdict));
  }
  TRY(const TlsStep reached, step(returned, 0));
  if (reached.wait_for == 0 && !certificate_.empty()) TRY_OK(check_certificate());
  return reached;
}

// Whoever can show it has its key, so the names in it do not matter.
Status TlsClient::check_certificate() const {
  TRY(const Certificate ours, read_certificate(certificate_));
  const Certificate shown(SSL_get1_peer_certificate(session_.get()));
  if (shown != nullptr && X509_cmp(shown.get(), ours.get()) == 0) return {};
  return fail(Code::kPermissionDenied,
              "the server shows another certificate than {} (the gateway uses a renewed one after a restart)",
              certificate_);
}

Result<TlsStep> TlsClient::send(std::string_view bytes) {
  ERR_clear_error();
  std::size_t sent = 0;
  const int returned = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &sent);
  return step(returned, sent);
}

Result<TlsStep> TlsClient::receive(char* into, std::size_t bytes_max) {
  ERR_clear_error();
  std::size_t got = 0;
  const int returned = SSL_read_ex(session_.get(), into, bytes_max, &got);
  return step(returned, got);
}

Result<TlsStep> TlsClient::step(int returned, std::size_t bytes) {
  if (returned > 0) return TlsStep{.bytes = bytes};
  const int error = errno;
  switch (SSL_get_error(session_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
      return TlsStep{.wait_for = POLLIN};
    case SSL_ERROR_WANT_WRITE:
      return TlsStep{.wait_for = POLLOUT};
    case SSL_ERROR_ZERO_RETURN:
      return TlsStep{};
    case SSL_ERROR_SYSCALL:
      return fail(Code::kUnavailable, "the connection broke: {}", std::strerror(error));
    default:
      return fail(Code::kUnavailable, "TLS: {}", ssl_reason());
  }
}

}  // namespace strata::cli
