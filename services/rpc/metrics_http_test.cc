#include "services/rpc/metrics_http.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "services/rpc/server.h"
#include "services/sys/process.h"

namespace strata::rpc {
namespace {

using ::testing::HasSubstr;

sys::FileDescriptor bound_socket(uint16_t& port) {
  sys::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t length = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  port = ntohs(address.sin_port);
  return socket;
}

std::string get_metrics(uint16_t port) {
  sys::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  timeval timeout{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  std::string_view request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char piece[4096];
  for (ssize_t n; (n = ::recv(socket.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<std::size_t>(n));
  return answer;
}

TEST(MetricsHttp, ServesTheProcesssMetrics) {
  uint16_t port = 0;
  bound_socket(port);  // a port that was free a moment ago
  auto metrics = std::make_shared<obs::Metrics>(obs::Labels{{"worker", "gpu0"}});
  metrics->counter("strata_things_total", "Things.").Increment(3);
  auto http = MetricsHttp::start(fmt::format("127.0.0.1:{}", port), metrics);
  ASSERT_TRUE(http.has_value()) << http.error().message();
  EXPECT_THAT(get_metrics(port), HasSubstr("strata_things_total{worker=\"gpu0\"} 3"));
}

TEST(MetricsHttp, SaysThatThePortIsTaken) {
  uint16_t port = 0;
  auto taken = bound_socket(port);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  auto http =
      MetricsHttp::start(fmt::format("127.0.0.1:{}", port), std::make_shared<obs::Metrics>(obs::Labels{}));
  ASSERT_FALSE(http.has_value());
  EXPECT_THAT(http.error().message(), HasSubstr(fmt::format("127.0.0.1:{}", port)));
}

TEST(MetricsAddress, CountsThePortsUp) {
  EXPECT_EQ(metrics_address("127.0.0.1:9470", "gpu-worker"), "127.0.0.1:9470");
  EXPECT_EQ(metrics_address("127.0.0.1:9470", "cache-manager"), "127.0.0.1:9471");
  EXPECT_EQ(metrics_address("127.0.0.1:9470", "cpu-expert-worker-0"), "127.0.0.1:9472");
  EXPECT_EQ(metrics_address("127.0.0.1:9470", "cpu-expert-worker-3"), "127.0.0.1:9475");
  EXPECT_EQ(metrics_address("127.0.0.1:9470", "gateway"), "");
  EXPECT_EQ(metrics_address("127.0.0.1:0", "cache-manager"), "127.0.0.1:0");
  EXPECT_EQ(metrics_address("", "gpu-worker"), "");
}

}  // namespace
}  // namespace strata::rpc
