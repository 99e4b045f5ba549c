#pragma once
// For tests: an HTTP server that sends what it is told to, piece by piece.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/cli/http_client.h"
#include "services/sys/process.h"

namespace strata::cli {

class ScriptedServer {
 public:
  // One answer per connection, in order.
  explicit ScriptedServer(std::vector<std::vector<std::string>> answers) : answers_(std::move(answers)) {
    listener_ = sys::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_.get(), 8);
    socklen_t length = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  Url url() const { return {.host = "127.0.0.1", .port = port_, .path = ""}; }
  std::vector<std::string> requests;  // read them after the answers

 private:
  void serve() {
    for (const auto& pieces : answers_) {
      sys::FileDescriptor client(::accept(listener_.get(), nullptr, nullptr));
      if (!client.valid()) return;
      timeval timeout{.tv_sec = 20, .tv_usec = 0};
      ::setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
      std::string request;
      char bytes[65536];
      do {
        ssize_t got = ::recv(client.get(), bytes, sizeof bytes, 0);
        if (got <= 0) break;
        request.append(bytes, static_cast<std::size_t>(got));
      } while (!request.ends_with('}') && !(request.starts_with("GET") && request.ends_with("\r\n\r\n")));
      requests.push_back(request);
      for (const std::string& piece : pieces) {
        if (piece == "<hold>") {
          ::recv(client.get(), bytes, sizeof bytes, 0);  // until the client goes
          break;
        }
        ::send(client.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
      }
    }
  }

  std::vector<std::vector<std::string>> answers_;
  sys::FileDescriptor listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace strata::cli
