#include "gateway/http/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "services/base/check.h"

namespace strata::gateway {

Exchange::Exchange(HttpRequest request, std::function<void()> wake)
    : request_(std::move(request)),
      wake_(std::move(wake)),
      bodiless_(request_.method == "HEAD"),
      close_after_(!request_.keep_alive) {}

void Exchange::add_headers(std::vector<std::pair<std::string, std::string>> headers) {
  CHECK(!started_, "the headers are sent already");
  std::ranges::move(headers, std::back_inserter(headers_));
}

void Exchange::respond(HttpResponse response) {
  CHECK(!started_, "a response was already begun");
  started_ = finished_ = true;
  status_ = response.status;
  std::string framing;
  if (response.status != 204) framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  std::ranges::copy(headers_, std::back_inserter(response.headers));
  buffer_ += format_head(request_, response, framing, close_after_);
  if (!bodiless_) buffer_ += response.body;
  wake_();
}

void Exchange::start_stream(HttpResponse head) {
  CHECK(!started_, "a response was already begun");
  started_ = true;
  status_ = head.status;
  // HTTP/1.0 knows no chunks: there the end of the connection is the end of the body.
  chunked_ = !request_.http_1_0;
  if (!chunked_) close_after_ = true;
  std::ranges::copy(headers_, std::back_inserter(head.headers));
  buffer_ += format_head(request_, head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", close_after_);
  wake_();
}

void Exchange::write(std::string_view bytes) {
  CHECK(started_ && !finished_, "write outside a stream");
  if (client_gone_ || bytes.empty()) return;
  if (chunked_) {
    buffer_ += fmt::format("{:x}\r\n", bytes.size());
    buffer_ += bytes;
    buffer_ += "\r\n";
  } else {
    buffer_ += bytes;
  }
  wake_();
}

void Exchange::finish() {
  CHECK(started_ && !finished_, "finish outside a stream");
  finished_ = true;
  if (chunked_) buffer_ += "0\r\n\r\n";
  wake_();
}

void Exchange::on_client_gone(std::function<void()> handler) {
  gone_handler_ = std::move(handler);
  if (client_gone_) gone_handler_();
}

void Exchange::abort() {
  aborted_ = true;
  buffer_.clear();
  wake_();
}

std::string Exchange::take_buffer(std::size_t bytes_max) {
  std::string out;
  if (buffer_.size() <= bytes_max) {
    out.swap(buffer_);
  } else {
    out = buffer_.substr(0, bytes_max);
    buffer_.erase(0, bytes_max);
  }
  return out;
}

void Exchange::set_client_gone() {
  if (client_gone_ || finished_) return;
  client_gone_ = true;
  buffer_.clear();
  if (gone_handler_) gone_handler_();
  wake_();
}

}  // namespace strata::gateway
