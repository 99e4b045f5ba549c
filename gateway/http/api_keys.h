#pragma once
// Who is let in (rules I5, I6): requests that show one of the keys. Of the keys only hashes are known here.

#include <string>
#include <vector>

#include "gateway/api/api_error.h"
#include "gateway/http/http_message.h"
#include "services/base/status.h"
#include "services/config/secret.h"

namespace strata::gateway {

// The keys of a file: one a line, as gateway.api_keys takes them; empty lines and lines that begin with # are
// skipped. Errors: kNotFound, kPermissionDenied (unreadable; or others may read it and it holds more than
// hashes), kInvalidArgument with FILE:LINE, also when it holds no key at all.
Result<std::vector<config::SecretHash>> read_key_file(const std::string& path);

class ApiKeys {
 public:
  // None: everybody is let in.
  explicit ApiKeys(std::vector<config::SecretHash> keys) : keys_(std::move(keys)) {}

  // Who asks: the hash of the key that was shown, "" where none is wanted. The error is a 401. A key stands
  // in "Authorization: Bearer KEY" or "x-api-key: KEY", never in the query; of several that are shown one
  // right one is enough, for some clients send a made-up one along.
  ApiResult<std::string> admit(const HttpRequest& request) const;

 private:
  const config::SecretHash* find(std::string_view key) const;

  std::vector<config::SecretHash> keys_;
};

// What a supervisor or a load balancer asks, without key: /live, /health, /v1/health, /ready.
bool needs_no_key(std::string_view target);

}  // namespace strata::gateway
