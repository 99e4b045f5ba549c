#include "services/sys/testing/test_certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>

#include "services/base/check.h"

namespace strata::sys::testing {

namespace {

template <auto release>
struct Free {
  void operator()(auto* object) const { release(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using File = std::unique_ptr<std::FILE, Free<std::fclose>>;

void add_extension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  CHECK(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, "{}", value);
}

File open(const std::string& path) {
  File file(std::fopen(path.c_str(), "we"));
  CHECK(file != nullptr, "{}", path);
  return file;
}

}  // namespace

TestCertificate make_test_certificate(const std::string& folder, const std::string& name,
                                      const TestCertificateOptions& options) {
  const Key key(EVP_EC_gen("P-256"));
  CHECK(key != nullptr, "no key was made");
  const Certificate certificate(X509_new());
  X509* const x509 = certificate.get();
  X509_set_version(x509, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), options.valid_from_s);
  X509_gmtime_adj(X509_getm_notAfter(x509), options.valid_until_s);
  const auto* common_name = reinterpret_cast<const unsigned char*>(name.c_str());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8, common_name, -1, -1, 0);
  X509_set_issuer_name(x509, X509_get_subject_name(x509));
  add_extension(x509, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  add_extension(x509, NID_basic_constraints, "critical,CA:TRUE");
  X509_set_pubkey(x509, key.get());
  CHECK(X509_sign(x509, key.get(), EVP_sha256()) > 0, "the certificate was not signed");

  TestCertificate made{.certificate_path = folder + "/" + name + ".pem",
                       .key_path = folder + "/" + name + ".key"};
  CHECK(PEM_write_X509(open(made.certificate_path).get(), x509) == 1, "{}", made.certificate_path);
  const File key_file = open(made.key_path);
  ::chmod(made.key_path.c_str(), 0600);
  const auto* passphrase = reinterpret_cast<const unsigned char*>(options.passphrase.data());
  const bool encrypted = !options.passphrase.empty();
  CHECK(PEM_write_PrivateKey(key_file.get(), key.get(), encrypted ? EVP_aes_256_cbc() : nullptr,
                             encrypted ? passphrase : nullptr, static_cast<int>(options.passphrase.size()),
                             nullptr, nullptr) == 1,
        "{}", made.key_path);
  return made;
}

}  // namespace strata::sys::testing
