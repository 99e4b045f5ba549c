#include "gateway/http/tls_certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string_view>

#include "services/sys/errno_status.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kCertificateSetting = "gateway.tls_certificate";
constexpr std::string_view kKeySetting = "gateway.tls_key";
constexpr off_t kPemBytesMax = 1 << 20;
constexpr mode_t kOthersMayReadOrWrite = S_IROTH | S_IWOTH;

template <auto release>
struct Release {
  void operator()(auto* object) const { release(object); }
};
using Bio = std::unique_ptr<BIO, Release<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Release<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;

// What OpenSSL said last, and nothing of what it said before.
std::string ssl_reason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "unknown fault" : reason;
}

struct PemFile {
  std::string_view setting;
  std::string path;
  std::string text = {};
  mode_t mode = 0;

  template <class... Args>
  Failure fault(Code code, fmt::format_string<Args...> format, Args&&... args) const {
    return fail(code, "{}: {}: {}", setting, path, fmt::format(format, std::forward<Args>(args)...));
  }
  Bio bio() const { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }
};

Result<PemFile> read_pem(std::string_view setting, const std::string& path) {
  PemFile file{.setting = setting, .path = path};
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    return file.fault(sys::errno_code(error), "{}", std::strerror(error));
  }
  if (!S_ISREG(info.st_mode)) return file.fault(Code::kInvalidArgument, "is not a file");
  if (info.st_size > kPemBytesMax)
    return file.fault(Code::kInvalidArgument, "is larger than {} bytes", kPemBytesMax);
  std::ifstream in(path, std::ios::binary);
  if (!in) return file.fault(Code::kPermissionDenied, "{}", std::strerror(errno));
  file.text.assign(std::istreambuf_iterator<char>(in), {});
  file.mode = info.st_mode & 07777;
  return file;
}

std::chrono::system_clock::time_point time_of(const ASN1_TIME* time) {
  std::tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

// The first certificate is the server's, those behind it lead to one that clients know.
Result<Certificate> use_certificates(SSL_CTX* context, const PemFile& file) {
  const Bio bio = file.bio();
  Certificate own(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (own == nullptr)
    return file.fault(Code::kInvalidArgument, "holds no certificate in PEM ({})", ssl_reason());
  if (SSL_CTX_use_certificate(context, own.get()) != 1)
    return file.fault(Code::kInvalidArgument, "cannot be used: {}", ssl_reason());
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    Certificate intermediate(next);
    // SSL_CTX_add1_chain_cert(), whose macro is C.
    if (SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, 1, intermediate.get()) != 1)
      return file.fault(Code::kInvalidArgument, "its chain cannot be used: {}", ssl_reason());
  }
  // The end of the file is one of these, too.
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    return file.fault(Code::kInvalidArgument, "a certificate behind the first is damaged ({})", ssl_reason());
  ERR_clear_error();
  return own;
}

int note_that_it_was_asked_for(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

Status use_key(SSL_CTX* context, const PemFile& file, const Certificate& certificate,
               const std::string& certificate_path) {
  if ((file.mode & kOthersMayReadOrWrite) != 0) {
    return file.fault(Code::kPermissionDenied, "everybody may read or write it (mode {:04o}); chmod 600 it",
                      file.mode);
  }
  bool passphrase_asked = false;
  const Bio bio = file.bio();
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, note_that_it_was_asked_for, &passphrase_asked));
  if (passphrase_asked) {
    ERR_clear_error();
    return file.fault(Code::kInvalidArgument, "wants a passphrase; nobody is there to give it");
  }
  if (key == nullptr)
    return file.fault(Code::kInvalidArgument, "holds no private key in PEM ({})", ssl_reason());
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return file.fault(Code::kInvalidArgument, "is not the key of the certificate {}", certificate_path);
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1)
    return file.fault(Code::kInvalidArgument, "cannot be used: {}", ssl_reason());
  return {};
}

// Clients that could do HTTP/2 learn here that we cannot; those that can do nothing else are told so
// (RFC 7301, 3.2).
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
                    const unsigned char* offered, unsigned int offered_bytes, void*) {
  static constexpr unsigned char kOurs[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_bytes, kOurs, sizeof kOurs, offered, offered_bytes) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

TlsCertificate::TlsCertificate()
    : context_(std::make_unique<boost::asio::ssl::context>(boost::asio::ssl::context::tls_server)) {
  SSL_CTX* context = context_->native_handle();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Sessions are resumed by tickets; what the server kept of them would only grow.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
}

TlsCertificate::~TlsCertificate() = default;

Result<std::shared_ptr<TlsCertificate>> TlsCertificate::load(const std::string& certificate_path,
                                                             const std::string& key_path) {
  if (certificate_path.empty() != key_path.empty()) {
    const bool no_key = key_path.empty();
    return fail(Code::kInvalidArgument, "{} is set and {} is not: https takes both",
                no_key ? kCertificateSetting : kKeySetting, no_key ? kKeySetting : kCertificateSetting);
  }
  std::shared_ptr<TlsCertificate> tls(new TlsCertificate);
  SSL_CTX* context = tls->context_->native_handle();
  TRY(const PemFile certificates, read_pem(kCertificateSetting, certificate_path));
  TRY(const Certificate own, use_certificates(context, certificates));
  TRY(const PemFile key, read_pem(kKeySetting, key_path));
  TRY_OK(use_key(context, key, own, certificate_path));
  tls->valid_from_ = time_of(X509_get0_notBefore(own.get()));
  tls->valid_until_ = time_of(X509_get0_notAfter(own.get()));
  return tls;
}

}  // namespace strata::gateway
