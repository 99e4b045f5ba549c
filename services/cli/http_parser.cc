#include "services/cli/http_parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace strata::cli {

namespace {

constexpr std::size_t kHeadBytesMax = 64 << 10;

std::string trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return std::string(text);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::optional<uint64_t> number(std::string_view digits, int base) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

Status HttpParser::feed(std::string_view bytes) {
  buffer_ += bytes;
  while (state_ != State::kComplete) {
    if (state_ == State::kHead) {
      auto end = buffer_.find("\r\n\r\n");
      if (end == std::string::npos) {
        if (buffer_.size() > kHeadBytesMax)
          return fail(Code::kDataLoss, "the head of the response has no end");
        return {};
      }
      std::string head = buffer_.substr(0, end + 2);
      buffer_.erase(0, end + 4);
      TRY_OK(read_head(head));
    } else if (state_ == State::kLength || state_ == State::kChunk) {
      if (left_ > 0 && buffer_.empty()) return {};
      std::size_t length = static_cast<std::size_t>(std::min<uint64_t>(left_, buffer_.size()));
      take_body(std::string_view(buffer_).substr(0, length));
      buffer_.erase(0, length);
      left_ -= length;
      if (left_ == 0) state_ = state_ == State::kLength ? State::kComplete : State::kChunkEnd;
    } else if (state_ == State::kUntilClose) {
      take_body(buffer_);
      buffer_.clear();
      return {};
    } else {
      auto line = next_line();
      if (!line) return {};
      if (state_ == State::kChunkSize) {
        TRY_OK(read_chunk_size(*line));
      } else if (state_ == State::kChunkEnd) {
        if (!line->empty()) return fail(Code::kDataLoss, "a chunk of the response is longer than it says");
        state_ = State::kChunkSize;
      } else if (line->empty()) {
        state_ = State::kComplete;
      }
    }
  }
  return {};
}

Status HttpParser::end() {
  if (state_ == State::kUntilClose) state_ = State::kComplete;
  if (state_ == State::kComplete) return {};
  return fail(Code::kUnavailable, "the server ended the connection in the middle of its answer");
}

Status HttpParser::read_head(std::string_view head) {
  auto first_end = head.find("\r\n");
  std::string_view first = head.substr(0, first_end);
  auto status =
      first.size() >= 12 && first.starts_with("HTTP/1.") ? number(first.substr(9, 3), 10) : std::nullopt;
  if (!status) return fail(Code::kDataLoss, "not an HTTP response");
  response_.status = static_cast<int>(*status);
  for (auto at = first_end + 2; at < head.size();) {
    auto line_end = head.find("\r\n", at);
    std::string_view line = head.substr(at, line_end - at);
    if (auto colon = line.find(':'); colon != std::string_view::npos) {
      response_.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
    }
    at = line_end + 2;
  }
  begin_body();
  return {};
}

void HttpParser::begin_body() {
  if (response_.status < 200) {  // 100 Continue: the response proper follows
    response_ = HttpResponse();
    return;
  }
  if (lower(response_.headers["transfer-encoding"]).find("chunked") != std::string::npos) {
    state_ = State::kChunkSize;
  } else if (auto length = number(response_.headers["content-length"], 10)) {
    left_ = *length;
    state_ = State::kLength;
  } else {
    state_ = response_.status == 204 ? State::kComplete : State::kUntilClose;
  }
}

Status HttpParser::read_chunk_size(std::string_view line) {
  auto size = number(trimmed(line.substr(0, line.find(';'))), 16);
  if (!size) return fail(Code::kDataLoss, "a chunk of the response has no size");
  left_ = *size;
  state_ = left_ == 0 ? State::kTrailer : State::kChunk;
  return {};
}

std::optional<std::string> HttpParser::next_line() {
  auto end = buffer_.find("\r\n");
  if (end == std::string::npos) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

void HttpParser::take_body(std::string_view piece) {
  if (piece.empty()) return;
  if (on_data_ && response_.status == 200) {
    on_data_(piece);
  } else {
    response_.body += piece;
  }
}

}  // namespace strata::cli
