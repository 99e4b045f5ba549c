#pragma once
// For tests of TLS: a key and a certificate that it signs itself, for 127.0.0.1 and localhost, in two PEM
// files.

#include <string>

namespace strata::sys::testing {

struct TestCertificate {
  std::string certificate_path;  // FOLDER/NAME.pem
  std::string key_path;          // FOLDER/NAME.key, mode 0600
};

struct TestCertificateOptions {
  long valid_from_s = -3600;  // from now
  long valid_until_s = 3600;
  std::string passphrase = {};  // of the key; empty: none
};

// CHECKs that it can be done.
TestCertificate make_test_certificate(const std::string& folder, const std::string& name,
                                      const TestCertificateOptions& options = {});

}  // namespace strata::sys::testing
