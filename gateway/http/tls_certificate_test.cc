#include "gateway/http/tls_certificate.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "services/sys/testing/test_certificate.h"

namespace strata::gateway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class TlsCertificateTest : public ::testing::Test {
 protected:
  TlsCertificateTest() {
    std::string folder = (fs::temp_directory_path() / "strata-tls-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    good_ = sys::testing::make_test_certificate(folder_, "good");
  }
  ~TlsCertificateTest() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    fs::permissions(folder_ + "/" + name, fs::perms(0600));
    return folder_ + "/" + name;
  }
  static std::string text(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  // What is wrong with the two; "": nothing.
  static std::string fault(const std::string& certificate, const std::string& key) {
    const auto tls = TlsCertificate::load(certificate, key);
    return tls ? "" : std::string(tls.error().message());
  }
  static Code code(const std::string& certificate, const std::string& key) {
    const auto tls = TlsCertificate::load(certificate, key);
    return tls ? Code::kOk : tls.error().code();
  }

  std::string folder_;
  sys::testing::TestCertificate good_;
};

TEST_F(TlsCertificateTest, KnowsWhenItIsValid) {
  const auto tls = TlsCertificate::load(good_.certificate_path, good_.key_path);
  ASSERT_TRUE(tls) << tls.error().message();
  const auto now = std::chrono::system_clock::now();
  EXPECT_LT((*tls)->valid_from(), now);
  EXPECT_GT((*tls)->valid_until(), now);
  EXPECT_EQ((*tls)->valid_until() - (*tls)->valid_from(), std::chrono::hours(2));
}

TEST_F(TlsCertificateTest, OneWithoutTheOtherIsAFault) {
  EXPECT_THAT(fault(good_.certificate_path, ""), HasSubstr("gateway.tls_key is not"));
  EXPECT_THAT(fault("", good_.key_path), HasSubstr("gateway.tls_certificate is not"));
}

TEST_F(TlsCertificateTest, AFileThatIsNotThereIsNamedWithItsSetting) {
  const std::string missing = folder_ + "/missing.pem";
  EXPECT_THAT(fault(missing, good_.key_path),
              AllOf(HasSubstr("gateway.tls_certificate"), HasSubstr(missing), HasSubstr("No such file")));
  EXPECT_THAT(fault(good_.certificate_path, missing),
              AllOf(HasSubstr("gateway.tls_key"), HasSubstr(missing)));
  EXPECT_EQ(code(missing, good_.key_path), Code::kNotFound);
  EXPECT_THAT(fault(folder_, good_.key_path), HasSubstr("is not a file"));
}

TEST_F(TlsCertificateTest, WhatIsNoPemIsAFault) {
  const std::string words = write("words.pem", "not a certificate\n");
  EXPECT_THAT(fault(words, good_.key_path), AllOf(HasSubstr(words), HasSubstr("no certificate in PEM")));
  EXPECT_THAT(fault(good_.certificate_path, words),
              AllOf(HasSubstr(words), HasSubstr("no private key in PEM")));
  EXPECT_THAT(fault(good_.key_path, good_.key_path), HasSubstr("no certificate in PEM")) << "mixed up";
  EXPECT_THAT(fault(write("empty.pem", ""), good_.key_path), HasSubstr("no certificate in PEM"));
  EXPECT_THAT(fault(write("large.pem", std::string((1 << 20) + 1, ' ')), good_.key_path),
              HasSubstr("larger"));
}

TEST_F(TlsCertificateTest, TheChainBehindTheFirstIsReadWhole) {
  const auto other = sys::testing::make_test_certificate(folder_, "other");
  const std::string own = text(good_.certificate_path), next = text(other.certificate_path);
  EXPECT_EQ(fault(write("chain.pem", own + next), good_.key_path), "");
  std::string damaged = next;
  damaged.replace(damaged.size() / 2, 8, "********");
  EXPECT_THAT(fault(write("damaged.pem", own + damaged), good_.key_path),
              HasSubstr("behind the first is damaged"));
}

TEST_F(TlsCertificateTest, AnotherCertificatesKeyIsAFault) {
  const auto other = sys::testing::make_test_certificate(folder_, "other");
  EXPECT_THAT(fault(good_.certificate_path, other.key_path),
              AllOf(HasSubstr("is not the key of"), HasSubstr(good_.certificate_path)));
}

TEST_F(TlsCertificateTest, AKeyWithAPassphraseIsAFaultAndNobodyIsAsked) {
  const auto locked = sys::testing::make_test_certificate(folder_, "locked", {.passphrase = "open sesame"});
  EXPECT_THAT(fault(locked.certificate_path, locked.key_path), HasSubstr("passphrase"));
}

TEST_F(TlsCertificateTest, AKeyThatEverybodyMayReadIsRefused) {
  for (const unsigned mode : {0644u, 0602u}) {
    fs::permissions(good_.key_path, fs::perms(mode));
    EXPECT_THAT(fault(good_.certificate_path, good_.key_path), HasSubstr("chmod 600"));
    EXPECT_EQ(code(good_.certificate_path, good_.key_path), Code::kPermissionDenied);
  }
  fs::permissions(good_.key_path, fs::perms(0640));
  EXPECT_EQ(fault(good_.certificate_path, good_.key_path), "") << "a group for certificates is usual";
}

}  // namespace
}  // namespace strata::gateway
