#include "gateway/http/api_keys.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "gateway/http/routes.h"

namespace strata::gateway {

namespace {

constexpr std::string_view kOpenPaths[] = {"/live", "/health", "/v1/health", "/ready"};

std::string_view trimmed(std::string_view text) {
  auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// "Bearer abc" -> "abc"; the scheme in any case (RFC 9110, 11.1). nullopt: another scheme, or none.
std::optional<std::string_view> bearer(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  value = trimmed(value);
  const bool right =
      value.size() > kScheme.size() &&
      std::ranges::equal(value.substr(0, kScheme.size()), kScheme,
                         [](unsigned char given, char wanted) { return std::tolower(given) == wanted; });
  if (!right) return {};
  return trimmed(value.substr(kScheme.size()));
}

ApiError unauthorized(bool shown) {
  ApiError error{.status = 401,
                 .message = shown ? "the API key is not one of this server's"
                                  : "this server wants an API key, as \"Authorization: Bearer KEY\" or "
                                    "\"x-api-key: KEY\""};
  error.code = "invalid_api_key";
  return error;
}

}  // namespace

Result<std::vector<config::SecretHash>> read_key_file(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return fail(errno == ENOENT ? Code::kNotFound : Code::kPermissionDenied, "gateway.api_keys_file: {}: {}",
                path, std::strerror(errno));
  }
  std::ifstream in(path);
  if (!S_ISREG(info.st_mode) || !in)
    return fail(Code::kPermissionDenied, "gateway.api_keys_file: {}: cannot be read as a file", path);
  std::vector<config::SecretHash> keys;
  bool plain = false;
  std::string text;
  for (std::size_t line = 1; std::getline(in, text); ++line) {
    const std::string_view entry = trimmed(text);
    if (entry.empty() || entry.starts_with('#')) continue;
    auto key = config::read_secret(entry);
    if (!key) {
      return fail(Code::kInvalidArgument, "gateway.api_keys_file: {}:{}: {}", path, line,
                  key.error().message());
    }
    plain |= entry != key->text();
    keys.push_back(*key);
  }
  if (keys.empty()) return fail(Code::kInvalidArgument, "gateway.api_keys_file: {}: holds no key", path);
  if (plain && (info.st_mode & S_IROTH) != 0) {
    return fail(Code::kPermissionDenied,
                "gateway.api_keys_file: {}: everybody may read these keys (mode {:04o}); chmod 600 it, or "
                "write sha256: and their hashes instead",
                path, info.st_mode & 07777);
  }
  return keys;
}

ApiResult<std::string> ApiKeys::admit(const HttpRequest& request) const {
  if (keys_.empty()) return "";
  bool shown = false;
  for (const auto& [name, value] : request.headers) {
    std::optional<std::string_view> key;
    if (name == "authorization") key = bearer(value);
    if (name == "x-api-key") key = trimmed(value);
    if (!key || key->empty()) continue;
    shown = true;
    if (const config::SecretHash* found = find(*key)) return found->text();
  }
  return tl::unexpected(unauthorized(shown));
}

// All hashes are compared to their ends, whatever is found on the way: neither which key it was nor how much
// of it was right shows in the time. That hashes are compared would be enough for the second.
const config::SecretHash* ApiKeys::find(std::string_view key) const {
  const config::SecretHash given = config::hash_secret(key);
  const config::SecretHash* found = nullptr;
  for (const config::SecretHash& known : keys_) {
    const bool same = CRYPTO_memcmp(known.bytes.data(), given.bytes.data(), given.bytes.size()) == 0;
    found = same ? &known : found;
  }
  return found;
}

bool needs_no_key(std::string_view target) {
  return std::ranges::find(kOpenPaths, request_path(target)) != std::end(kOpenPaths);
}

}  // namespace strata::gateway
