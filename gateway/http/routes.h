#pragma once
// Which handler a request goes to. On the path only: the query is ignored, one trailing slash is tolerated
// (rule B10), anything else is exact.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gateway/api/api_error.h"

namespace strata::gateway {

enum class Route {
  kIndex,
  kLive,
  kHealth,
  kReady,
  kMetrics,
  kProps,
  kModels,
  kModel,
  kChatCompletions,
  kCompletions,
  kMessages,
  kCountTokens,
  kApplyTemplate,
  kResponses,
  kResponse,
  kDeleteResponse,
  kResponseItems,
  kCancelResponse,
  kTokenize,
  kDetokenize,
  kSlots,
  kOpenApi,
};

// What is served: the path may hold one name in braces. {model} is the rest of the path, slashes included;
// other names are one part of it.
struct ServedRoute {
  std::string_view method;  // GET stands for HEAD, too
  std::string_view path;
  Route route = Route::kIndex;
};
std::span<const ServedRoute> served_routes();

struct Match {
  Route route = Route::kIndex;
  std::string name = {};  // what stands for the braces, percent-decoded
};

struct RouteFault {
  ApiError error;     // 404, 405, 501
  std::string allow;  // with 405
};

// method HEAD counts as GET. OPTIONS is not routed: it is answered for every path.
tl::expected<Match, RouteFault> find_route(std::string_view method, std::string_view target);

// Whose errors a request of this target gets.
Dialect dialect_of(std::string_view target);

// The path without query and trailing slash.
std::string_view request_path(std::string_view target);
// A value of the query, percent-decoded; of several the first.
std::optional<std::string> query_value(std::string_view target, std::string_view name);

}  // namespace strata::gateway
