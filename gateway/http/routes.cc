#include "gateway/http/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

struct Entry {
  std::string_view path;
  bool get = true;  // else POST
  Route route = Route::kIndex;
};

constexpr Entry kEntries[] = {
    {"/", true, Route::kIndex},
    {"/live", true, Route::kLive},
    {"/health", true, Route::kHealth},
    {"/v1/health", true, Route::kHealth},
    {"/ready", true, Route::kReady},
    {"/metrics", true, Route::kMetrics},
    {"/props", true, Route::kProps},
    {"/v1/models", true, Route::kModels},
    {"/v1/chat/completions", false, Route::kChatCompletions},
    {"/v1/completions", false, Route::kCompletions},
    {"/v1/messages", false, Route::kMessages},
    {"/v1/messages/count_tokens", false, Route::kCountTokens},
    {"/apply-template", false, Route::kApplyTemplate},
};

constexpr std::string_view kModelPrefix = "/v1/models/";

// Parts of the API that clients know and this server does not have. A name that ends in / stands for
// everything below it.
constexpr std::string_view kNotSupported[] = {
    "/v1/embeddings", "/v1/audio/",     "/v1/images/",   "/v1/moderations", "/rerank",     "/v1/rerank",
    "/v1/responses",  "/v1/responses/", "/v1/messages/", "/v1/files",       "/v1/batches", "/v1/fine_tuning/",
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

RouteFault wrong_method(std::string_view method, std::string_view path, bool get) {
  const std::string allow = get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
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

Dialect dialect_of(std::string_view target) {
  const std::string_view path = request_path(target);
  return path == "/v1/messages" || path.starts_with("/v1/messages/") ? Dialect::kAnthropic : Dialect::kOpenAi;
}

tl::expected<Match, RouteFault> find_route(std::string_view method, std::string_view target) {
  const std::string_view path = request_path(target);
  const bool get = method == "GET" || method == "HEAD";
  for (const Entry& entry : kEntries) {
    if (entry.path != path) continue;
    if (entry.get != get || (!get && method != "POST"))
      return tl::unexpected(wrong_method(method, entry.path, entry.get));
    return Match{.route = entry.route};
  }
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) {
    if (!get) return tl::unexpected(wrong_method(method, "/v1/models/<id>", true));
    return Match{.route = Route::kModel, .model = percent_decode(path.substr(kModelPrefix.size()))};
  }
  if (not_supported(path)) {
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
