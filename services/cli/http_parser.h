#pragma once
// The response side of HTTP/1.1, fed with bytes as they come.

#include <optional>

#include "services/cli/http_client.h"

namespace strata::cli {

class HttpParser {
 public:
  explicit HttpParser(OnData on_data) : on_data_(std::move(on_data)) {}

  // kDataLoss: this is no HTTP response.
  Status feed(std::string_view bytes);
  // The connection has ended: fine if the body had no length of its own.
  Status end();
  bool complete() const { return state_ == State::kComplete; }
  HttpResponse take() { return std::move(response_); }

 private:
  enum class State { kHead, kLength, kUntilClose, kChunkSize, kChunk, kChunkEnd, kTrailer, kComplete };
  Status read_head(std::string_view head);
  Status read_chunk_size(std::string_view line);
  void begin_body();
  void take_body(std::string_view piece);
  // The next line of the buffer without its end; nullopt: not there yet.
  std::optional<std::string> next_line();

  OnData on_data_;
  HttpResponse response_;
  State state_ = State::kHead;
  std::string buffer_;
  uint64_t left_ = 0;  // bytes of the body or chunk still to come
};

}  // namespace strata::cli
