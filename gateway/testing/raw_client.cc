#include "gateway/testing/raw_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace strata::gateway::testing {

namespace {

constexpr std::chrono::seconds kPatience{30};

std::chrono::steady_clock::time_point in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

}  // namespace

RawClient::RawClient(uint16_t port, int receive_buffer_bytes)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes != 0) {
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send_some(bytes);
    if (sent <= 0) return;  // the server has closed; the test sees it when it reads
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

ssize_t RawClient::send_some(std::string_view bytes) {
  return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

ssize_t RawClient::receive_some(char* into, std::size_t bytes_max) {
  return ::recv(socket_.get(), into, bytes_max, 0);
}

void RawClient::request(std::string_view method, std::string_view path, std::string_view body,
                        std::string_view more_headers) {
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}", method, path, more_headers);
  if (!body.empty())
    head += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  send(head + "\r\n" + std::string(body));
}

RawResponse RawClient::response(bool to_head) {
  RawResponse out;
  std::string status = line();
  EXPECT_TRUE(status.starts_with("HTTP/1.1 ")) << status;
  if (status.size() > 9) out.status = std::atoi(status.c_str() + 9);
  for (std::string header = line(); !header.empty(); header = line()) {
    std::string name = header.substr(0, header.find(':'));
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    out.headers[name] = header.substr(std::min(header.find(':') + 2, header.size()));
  }
  if (to_head || out.status == 204 || out.status == 100) return out;
  if (out.headers.contains("content-length")) {
    out.body = take(std::stoul(out.headers["content-length"]));
  } else if (out.headers["transfer-encoding"] == "chunked") {
    for (;;) {
      const std::string length = line();
      const std::size_t size = length.empty() ? 0 : std::stoul(length, nullptr, 16);
      out.body += take(size);
      EXPECT_EQ(line(), "");
      if (size == 0) break;
    }
  } else {
    EXPECT_TRUE(closed());
    out.body.swap(buffer_);
  }
  return out;
}

bool RawClient::read_until(std::string_view text, std::chrono::milliseconds limit) {
  const auto until = in(limit);
  while (buffer_.find(text) == std::string::npos) {
    if (!read_more(until)) return false;
  }
  return true;
}

bool RawClient::closed(std::chrono::milliseconds limit) {
  const auto until = in(limit);
  while (read_more(until)) continue;
  return std::chrono::steady_clock::now() < until;
}

void RawClient::stop_sending() { ::shutdown(socket_.get(), SHUT_WR); }

bool RawClient::read_more(std::chrono::steady_clock::time_point until) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  pollfd state{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (left <= 0 || (!holds_received() && ::poll(&state, 1, static_cast<int>(left)) != 1)) return false;
  char bytes[16384];
  const ssize_t count = receive_some(bytes, sizeof bytes);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

std::string RawClient::take(std::size_t bytes) {
  const auto until = in(kPatience);
  while (buffer_.size() < bytes) {
    if (!read_more(until)) {
      ADD_FAILURE() << "the connection ended in a body; received: " << buffer_;
      return {};
    }
  }
  std::string out = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return out;
}

std::string RawClient::line() {
  if (!read_until("\r\n", kPatience)) {
    ADD_FAILURE() << "no line; received: " << buffer_;
    return {};
  }
  std::string out = buffer_.substr(0, buffer_.find("\r\n"));
  buffer_.erase(0, out.size() + 2);
  return out;
}

}  // namespace strata::gateway::testing
