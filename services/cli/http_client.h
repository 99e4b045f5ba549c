#pragma once
// A small blocking HTTP/1.1 client for the commands: http and https, one request per connection, bodies
// handed on as they arrive.

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace strata::cli {

struct Url {
  std::string host;  // without brackets
  uint16_t port = 80;
  std::string path;  // "" or "/prefix", without a slash at the end
  bool tls = false;  // https
  // With https: a PEM file with the server's certificate; empty: see TlsClient.
  std::string certificate = {};
};
// "http://127.0.0.1:8080" or "https://..."; kInvalidArgument for anything else.
Result<Url> parse_url(const std::string& text);

struct HttpRequest {
  std::string method = "GET";
  std::string path;  // below the URL's
  std::string body;  // JSON; empty: none
  std::chrono::milliseconds silence_timeout = std::chrono::minutes(10);
  const std::atomic<bool>* cancelled = nullptr;  // looked at all the time; set: kCancelled
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without what went to on_data
};

using OnData = std::function<void(std::string_view)>;

// on_data, if given, gets the body of a 200 answer piece by piece; other answers come back whole.
// Errors: kUnavailable (nobody listens, connection broken), kDeadlineExceeded, kCancelled, kDataLoss (not
// HTTP); with https those of TlsClient, too.
Result<HttpResponse> http_request(const Url& url, const HttpRequest& request, const OnData& on_data = {});

}  // namespace strata::cli
