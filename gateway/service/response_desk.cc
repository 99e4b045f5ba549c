#include "gateway/service/response_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/string.hpp>
#include <charconv>
#include <optional>

#include "gateway/api/json_text.h"
#include "gateway/http/routes.h"

namespace strata::gateway {

namespace {

constexpr std::size_t kPageDefault = 20, kPageMax = 100;

std::optional<std::size_t> page_size(std::string_view target) {
  const auto given = query_value(target, "limit");
  if (!given) return kPageDefault;
  std::size_t limit = 0;
  const auto parsed = std::from_chars(given->data(), given->data() + given->size(), limit);
  if (parsed.ec != std::errc() || parsed.ptr != given->data() + given->size() || limit == 0 ||
      limit > kPageMax)
    return {};
  return limit;
}

std::string_view id_of(const boost::json::value& item) {
  const boost::json::value* id = item.is_object() ? item.get_object().if_contains("id") : nullptr;
  return id != nullptr && id->is_string() ? std::string_view(id->get_string()) : std::string_view();
}

boost::json::value id_or_null(const boost::json::array& page, bool first) {
  if (page.empty()) return nullptr;
  return boost::json::value(id_of(first ? page.front() : page.back()));
}

}  // namespace

ApiResult<std::string> input_items_page(const StoredResponse& stored, std::string_view target) {
  const std::string order = query_value(target, "order").value_or("desc");
  if (order != "asc" && order != "desc")
    return tl::unexpected(
        invalid_request(fmt::format("order must be asc or desc, got {}", snippet(order)), "order"));
  const auto limit = page_size(target);
  if (!limit)
    return tl::unexpected(
        invalid_request(fmt::format("limit must be a number from 1 to {}", kPageMax), "limit"));
  boost::json::error_code error;
  boost::json::value parsed = boost::json::parse(stored.input, error, {}, {.max_depth = 2 * kJsonDepthMax});
  if (error || !parsed.is_array()) {
    return tl::unexpected(ApiError{.status = 500,
                                   .type = "server_error",
                                   .message = "the stored items cannot be read",
                                   .code = "storage_error"});
  }
  boost::json::array& items = parsed.get_array();
  if (order == "desc") std::reverse(items.begin(), items.end());
  auto at = items.begin();
  if (const auto after = query_value(target, "after")) {
    at = std::find_if(items.begin(), items.end(), [&](const auto& item) { return id_of(item) == *after; });
    if (at == items.end())
      return tl::unexpected(
          invalid_request(fmt::format("after: there is no item {}", snippet(*after)), "after"));
    ++at;
  }
  boost::json::array page;
  for (; at != items.end() && page.size() < *limit; ++at) page.push_back(std::move(*at));
  boost::json::object out;
  out["object"] = "list";
  out["first_id"] = id_or_null(page, true);
  out["last_id"] = id_or_null(page, false);
  out["has_more"] = at != items.end();
  out["data"] = std::move(page);
  return to_json(out);
}

std::string deleted_response(std::string_view id) {
  boost::json::object out;
  out["id"] = id;
  out["object"] = "response";
  out["deleted"] = true;
  return to_json(out);
}

ApiError not_in_background() {
  ApiError error = invalid_request(
      "only responses that are made in the background can be cancelled, and this "
      "server makes none; closing the connection ends a running one");
  error.code = "not_in_background";
  return error;
}

ApiError storage_is_off(std::string param) {
  ApiError error = invalid_request(
      "this server does not store responses (responses.store); send the conversation's items as input",
      std::move(param));
  error.code = "storage_off";
  return error;
}

ApiError nothing_is_stored() {
  return not_found("this server does not store responses (responses.store)", "response_not_found");
}

}  // namespace strata::gateway
