#pragma once
// Which web pages of other origins may call the API (rule I1): none, unless the operator names them. A
// browser asks before it sends (the preflight), and shows a page only those answers that name the page's
// origin.

#include <string>
#include <utility>
#include <vector>

#include "gateway/http/http_message.h"

namespace strata::gateway {

class Cors {
 public:
  // As gateway.cors_origins has them. None: no response has a header from here.
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  bool allows(const std::string& origin) const;

  using Headers = std::vector<std::pair<std::string, std::string>>;
  // Of every response to this request.
  Headers response_headers(const HttpRequest& request) const;
  // Beside those, of the response to OPTIONS. Credentials are not spoken of: they are for cookies, and keys
  // are headers like others.
  Headers preflight_headers(const HttpRequest& request) const;

 private:
  bool allows_sender(const HttpRequest& request) const;

  std::vector<std::string> origins_;
};

}  // namespace strata::gateway
