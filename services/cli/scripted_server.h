#pragma once
// For tests: an HTTP server that sends what it is told to, piece by piece.

#include <sys/socket.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/cli/http_client.h"
#include "services/cli/loopback_listener.h"
#include "services/sys/process.h"

namespace strata::cli {

class ScriptedServer {
 public:
  // One answer per connection, in order.
  explicit ScriptedServer(std::vector<std::vector<std::string>> answers) : answers_(std::move(answers)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    listener_.stop();
    thread_.join();
  }
  Url url() const { return {.host = "127.0.0.1", .port = listener_.port(), .path = ""}; }
  std::vector<std::string> requests;  // read them after the answers

 private:
  void serve() {
    for (const auto& pieces : answers_) {
      const sys::FileDescriptor client = listener_.accept();
      if (!client.valid()) return;
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
  LoopbackListener listener_;
  std::thread thread_;
};

}  // namespace strata::cli
