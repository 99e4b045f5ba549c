#pragma once
// One request and the way to answer it. The handler writes into a buffer and never waits; the connection
// empties the buffer as fast as the client reads. Whoever writes a stream looks at buffered_bytes(): a client
// that does not read must not cost memory.
//
// Threads: everything on the HTTP thread.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "gateway/http/http_message.h"

namespace strata::gateway {

class Exchange {
 public:
  // wake: called whenever there is something new to send.
  Exchange(HttpRequest request, std::function<void()> wake);

  const HttpRequest& request() const { return request_; }

  // --- for the handler: first who asks and what every response gets, then
  void set_key_hash(std::string hash) { request_.key_hash = std::move(hash); }
  void add_headers(std::vector<std::pair<std::string, std::string>> headers);
  // either respond(), or start_stream(), write()..., finish().
  void respond(HttpResponse response);
  void start_stream(HttpResponse head);
  void write(std::string_view bytes);
  void finish();
  bool started() const { return started_; }
  uint32_t status() const { return status_; }
  std::size_t buffered_bytes() const { return buffer_.size(); }
  bool client_gone() const { return client_gone_; }
  // Called once, when the client has left before finish(). If it has left already: at once.
  void on_client_gone(std::function<void()> handler);
  // Ends the connection without more words: the client does not read.
  void abort();
  // Numbers for the log line, e.g. " prompt=12 generated=7 outcome=ok".
  void set_log_detail(std::string detail) { log_detail_ = std::move(detail); }
  const std::string& log_detail() const { return log_detail_; }

  // --- for the connection.
  void set_body(std::string body) { request_.body = std::move(body); }  // before serve()
  std::string take_buffer(std::size_t bytes_max);
  bool finished() const { return finished_; }
  bool aborted() const { return aborted_; }
  bool close_after() const { return close_after_; }
  void set_close_after() { close_after_ = true; }
  void set_client_gone();

 private:
  HttpRequest request_;
  std::function<void()> wake_;
  std::function<void()> gone_handler_;
  std::vector<std::pair<std::string, std::string>> headers_;
  std::string buffer_;
  std::string log_detail_;
  uint32_t status_ = 0;
  bool started_ = false;
  bool chunked_ = false;
  bool bodiless_ = false;  // HEAD
  bool finished_ = false;
  bool aborted_ = false;
  bool close_after_ = false;
  bool client_gone_ = false;
};

}  // namespace strata::gateway
