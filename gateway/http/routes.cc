#include "gateway/http/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr ServedRoute kRoutes[] = {
    {"GET", "/", Route::kIndex},
    {"GET", "/live", Route::kLive},
    {"GET", "/health", Route::kHealth},
    {"GET", "/v1/health", Route::kHealth},
    {"GET", "/ready", Route::kReady},
    {"GET", "/metrics", Route::kMetrics},
    {"GET", "/props", Route::kProps},
    {"GET", "/v1/models", Route::kModels},
    {"GET", "/v1/models/{model}", Route::kModel},
    {"POST", "/v1/chat/completions", Route::kChatCompletions},
    {"POST", "/v1/completions", Route::kCompletions},
    {"POST", "/v1/messages", Route::kMessages},
    {"POST", "/v1/messages/count_tokens", Route::kCountTokens},
    {"POST", "/v1/responses", Route::kResponses},
    {"GET", "/v1/responses/{response_id}", Route::kResponse},
    {"DELETE", "/v1/responses/{response_id}", Route::kDeleteResponse},
    {"GET", "/v1/responses/{response_id}/input_items", Route::kResponseItems},
    {"POST", "/v1/responses/{response_id}/cancel", Route::kCancelResponse},
    {"POST", "/apply-template", Route::kApplyTemplate},
    {"POST", "/tokenize", Route::kTokenize},
    {"POST", "/v1/tokenize", Route::kTokenize},
    {"POST", "/detokenize", Route::kDetokenize},
    {"POST", "/v1/detokenize", Route::kDetokenize},
    {"GET", "/slots", Route::kSlots},
    {"GET", "/openapi.json", Route::kOpenApi},
};

// Parts of the API that clients know and this server does not have. A name that ends in / stands for
// everything below it.
constexpr std::string_view kNotSupported[] = {
    "/v1/embeddings",
    "/v1/audio/",
    "/v1/images/",
    "/v1/moderations",
    "/rerank",
    "/v1/rerank",
    "/v1/messages/",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
    "/v1/files",
    "/v1/batches",
    "/v1/fine_tuning/",
};

bool not_supported(std::string_view path) {
  return std::ranges::any_of(kNotSupported, [path](std::string_view name) {
    return name.ends_with('/') ? path.starts_with(name) : path == name;
  });
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 3 <= text.size()) {
      auto parsed = std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16);
      if (parsed.ec == std::errc() && parsed.ptr == text.data() + i + 3) {
        out += static_cast<char>(value);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

// The part of the path that stands for the braces of the pattern; nullopt: another path.
std::optional<std::string_view> match_path(std::string_view pattern, std::string_view path) {
  const std::size_t open = pattern.find('{'), close = pattern.find('}');
  if (open == std::string_view::npos)
    return pattern == path ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view before = pattern.substr(0, open), after = pattern.substr(close + 1);
  if (path.size() <= before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after))
    return {};
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - after.size());
  const bool may_hold_slashes = pattern.ends_with("{model}");
  if (!may_hold_slashes && name.find('/') != std::string_view::npos) return {};
  return name;
}

RouteFault wrong_method(std::string_view method, std::string_view path, std::string_view served) {
  const std::string allow = fmt::format("{}OPTIONS", served);
  ApiError error{
      .status = 405,
      .message = fmt::format("{} is not allowed on {}; allowed: {}", snippet(method), path, allow)};
  error.code = "method_not_allowed";
  return {.error = std::move(error), .allow = allow};
}

}  // namespace

std::string_view request_path(std::string_view target) {
  std::string_view path = target.substr(0, target.find('?'));
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

std::optional<std::string> query_value(std::string_view target, std::string_view name) {
  std::size_t at = target.find('?');
  while (at != std::string_view::npos) {
    const std::size_t end = std::min(target.find('&', at + 1), target.size());
    const std::string_view pair = target.substr(at + 1, end - at - 1);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) return percent_decode(pair.substr(std::min(equals + 1, pair.size())));
    at = end == target.size() ? std::string_view::npos : end;
  }
  return {};
}

Dialect dialect_of(std::string_view target) {
  const std::string_view path = request_path(target);
  return path == "/v1/messages" || path.starts_with("/v1/messages/") ? Dialect::kAnthropic : Dialect::kOpenAi;
}

std::span<const ServedRoute> served_routes() { return kRoutes; }

tl::expected<Match, RouteFault> find_route(std::string_view method, std::string_view target) {
  const std::string_view path = request_path(target);
  const bool unsupported = not_supported(path);
  std::string_view pattern;
  std::string allowed;
  for (const ServedRoute& served : kRoutes) {
    const auto name = match_path(served.path, path);
    if (!name || (unsupported && !name->empty())) continue;
    if (served.method == method || (method == "HEAD" && served.method == "GET"))
      return Match{.route = served.route, .name = percent_decode(*name)};
    pattern = served.path;
    allowed += fmt::format("{}, ", served.method == "GET" ? "GET, HEAD" : served.method);
  }
  if (!pattern.empty()) return tl::unexpected(wrong_method(method, pattern, allowed));
  if (unsupported) {
    ApiError error{.status = 501,
                   .type = "not_supported_error",
                   .message = fmt::format("{} is not supported by this server", snippet(path))};
    error.code = "not_supported";
    return tl::unexpected(RouteFault{.error = std::move(error), .allow = {}});
  }
  return tl::unexpected(RouteFault{
      .error = not_found(fmt::format("there is nothing at {}", snippet(path)), "not_found"), .allow = {}});
}

}  // namespace strata::gateway
