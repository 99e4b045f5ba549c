#pragma once
// A bare HTTP/1.1 connection for tests of the framing itself: bytes out, strictly framed responses in. Every
// wait has a deadline.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "services/sys/process.h"

namespace strata::gateway::testing {

struct RawResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);
  virtual ~RawClient() = default;

  void send(std::string_view bytes);
  // A request with Host, and with a body its length and type.
  void request(std::string_view method, std::string_view path, std::string_view body = {},
               std::string_view more_headers = {});
  RawResponse response(bool to_head = false);
  // Reads until the text has been received; false: the connection ended or the time was over first.
  bool read_until(std::string_view text, std::chrono::milliseconds limit = std::chrono::seconds(20));
  bool closed(std::chrono::milliseconds limit = std::chrono::seconds(20));  // by the server
  void stop_sending();
  void close() { socket_ = {}; }
  const std::string& received() const { return buffer_; }

 protected:
  // As send() and recv() of a socket; of the latter there is something to be had, or the end.
  virtual ssize_t send_some(std::string_view bytes);
  virtual ssize_t receive_some(char* into, std::size_t bytes_max);
  virtual bool holds_received() const { return false; }  // what the socket does not show any more
  int socket() const { return socket_.get(); }

 private:
  bool read_more(std::chrono::steady_clock::time_point until);  // false: the end, or out of time
  std::string take(std::size_t bytes);
  std::string line();

  sys::FileDescriptor socket_;
  std::string buffer_;
};

}  // namespace strata::gateway::testing
