// The commands' HTTP client over TLS, against a server of OpenSSL's own.

#include "services/cli/tls_client.h"

#include <gmock/gmock.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "services/cli/http_client.h"
#include "services/cli/loopback_listener.h"
#include "services/sys/process.h"
#include "services/sys/testing/test_certificate.h"

namespace strata::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

enum class Manner {
  kPolite,   // ends with TLS's goodbye
  kCutsOff,  // ends without it
  kNoTls,
};

// Answers one connection and ends.
class TlsServer {
 public:
  TlsServer(const sys::testing::TestCertificate& certificate, std::string answer,
            Manner manner = Manner::kPolite)
      : context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free),
        answer_(std::move(answer)),
        manner_(manner) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that are closed
    SSL_CTX_use_certificate_file(context_.get(), certificate.certificate_path.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(context_.get(), certificate.key_path.c_str(), SSL_FILETYPE_PEM);
    thread_ = std::thread([this] { serve(); });
  }
  ~TlsServer() {
    listener_.stop();
    thread_.join();
  }
  Url url(const std::string& certificate) const {
    return {
        .host = "127.0.0.1", .port = listener_.port(), .path = "", .tls = true, .certificate = certificate};
  }
  const std::string& request() const { return request_; }  // read it after the answer

 private:
  void serve() {
    const sys::FileDescriptor client = listener_.accept();
    if (!client.valid()) return;
    if (manner_ == Manner::kNoTls) {
      ::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      return;
    }
    const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context_.get()), SSL_free);
    SSL_set_fd(session.get(), client.get());
    if (SSL_accept(session.get()) != 1) return;
    char bytes[4096];
    while (!request_.ends_with("\r\n\r\n") && !request_.ends_with('}')) {
      const int got = SSL_read(session.get(), bytes, sizeof bytes);
      if (got <= 0) return;
      request_.append(bytes, static_cast<std::size_t>(got));
    }
    SSL_write(session.get(), answer_.data(), static_cast<int>(answer_.size()));
    if (manner_ == Manner::kPolite) SSL_shutdown(session.get());
  }

  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  std::string answer_;
  Manner manner_;
  std::string request_;
  LoopbackListener listener_;
  std::thread thread_;
};

class TlsClientTest : public ::testing::Test {
 protected:
  TlsClientTest() {
    std::string folder = (fs::temp_directory_path() / "strata-cli-tls-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    certificate_ = sys::testing::make_test_certificate(folder_, "server");
    ::unsetenv("SSL_CERT_FILE");
  }
  ~TlsClientTest() override {
    ::unsetenv("SSL_CERT_FILE");
    fs::remove_all(folder_);
  }
  static Result<HttpResponse> get(const Url& url) {
    return http_request(url, {.path = "/v1/models", .body = {}, .silence_timeout = std::chrono::seconds(20)});
  }

  std::string folder_;
  sys::testing::TestCertificate certificate_;
};

TEST_F(TlsClientTest, AsksTheServerThatHasTheCertificate) {
  TlsServer server(certificate_, kAnswer);
  const auto answer = get(server.url(certificate_.certificate_path));
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, "hello");
  EXPECT_THAT(server.request(), HasSubstr("GET /v1/models HTTP/1.1\r\n"));
}

TEST_F(TlsClientTest, BodiesOfManyRecordsGoBothWays) {
  const std::string large(1 << 20, 'x');
  TlsServer server(certificate_,
                   fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", large.size(), large));
  const auto answer = http_request(server.url(certificate_.certificate_path),
                                   {.method = "POST", .path = "/", .body = "{" + large + "}"});
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->body, large);
  EXPECT_GT(server.request().size(), large.size());
}

TEST_F(TlsClientTest, AnotherCertificateThanTheExpectedIsRefusedBeforeAnythingIsSaid) {
  const auto other = sys::testing::make_test_certificate(folder_, "other");
  TlsServer server(certificate_, kAnswer);
  const auto answer = get(server.url(other.certificate_path));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(answer.error().message()), HasSubstr(other.certificate_path));
}

TEST_F(TlsClientTest, WithoutACertificateAnAuthorityHasToVouch) {
  {
    TlsServer server(certificate_, kAnswer);
    const auto answer = get(server.url(""));
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code(), Code::kPermissionDenied);
    EXPECT_THAT(std::string(answer.error().message()),
                AllOf(HasSubstr("not trusted"), HasSubstr("self-signed")));
  }
  ::setenv("SSL_CERT_FILE", certificate_.certificate_path.c_str(), 1);
  TlsServer server(certificate_, kAnswer);
  const auto answer = get(server.url(""));
  EXPECT_TRUE(answer) << answer.error().message();
}

TEST_F(TlsClientTest, WithoutACertificateTheNameHasToBeRight) {
  ::setenv("SSL_CERT_FILE", certificate_.certificate_path.c_str(), 1);
  {
    TlsServer server(certificate_, kAnswer);
    Url url = server.url("");
    url.host = "localhost";
    EXPECT_TRUE(get(url));
  }
  TlsServer server(certificate_, kAnswer);
  Url url = server.url("");
  url.host = "127.1";  // the same address by a name that the certificate does not have
  const auto answer = get(url);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(std::string(answer.error().message()), HasSubstr("mismatch"));
}

TEST_F(TlsClientTest, AnAnswerThatIsCutOffIsAnError) {
  // Without a length the end of the connection is the end of the body, and anybody can end a connection.
  TlsServer server(certificate_, "HTTP/1.1 200 OK\r\n\r\nhalf", Manner::kCutsOff);
  const auto answer = get(server.url(certificate_.certificate_path));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
}

TEST_F(TlsClientTest, AServerWithoutTlsIsAnError) {
  TlsServer server(certificate_, kAnswer, Manner::kNoTls);
  const auto answer = get(server.url(certificate_.certificate_path));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(answer.error().message()), HasSubstr("TLS"));
}

TEST_F(TlsClientTest, AFileWithoutCertificateIsNamed) {
  const std::string missing = folder_ + "/missing.pem";
  auto client = TlsClient::create(-1, "127.0.0.1", missing);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code(), Code::kNotFound);
  EXPECT_THAT(std::string(client.error().message()), HasSubstr(missing));
  std::ofstream(missing) << "words\n";
  client = TlsClient::create(-1, "127.0.0.1", missing);
  ASSERT_FALSE(client);
  EXPECT_THAT(std::string(client.error().message()), HasSubstr("no certificate in PEM"));
}

}  // namespace
}  // namespace strata::cli
