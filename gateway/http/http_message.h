#pragma once
// A request and a response as the gateway's handlers see them: strings, no Beast types.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/api/api_error.h"

namespace strata::gateway {

struct HttpRequest {
  std::string method = {};                                        // "POST"
  std::string target = {};                                        // as sent: path and query
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in lower case, in order
  std::string body = {};
  bool http_1_0 = false;
  bool keep_alive = true;
  std::string id = {};        // of this request: in the response's x-request-id and in the log
  std::string key_hash = {};  // of the API key it was admitted with; empty: no key was wanted

  // nullptr: the header is not there. name in lower case.
  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  uint32_t status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The status line and headers, with the empty line. How the body is framed stands in `framing`:
// "Content-Length: 12\r\n" or "Transfer-Encoding: chunked\r\n" or nothing (the end of the connection ends the
// body).
std::string format_head(const HttpRequest& request, const HttpResponse& response, std::string_view framing,
                        bool close);

// The error as a response, with its Retry-After.
HttpResponse error_response(const ApiError& error, Dialect dialect = Dialect::kOpenAi);

// Header values that we make from a client's words keep only printable ASCII.
std::string header_safe(std::string_view text);

}  // namespace strata::gateway
