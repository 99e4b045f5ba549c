#pragma once
// What is said about stored responses. Pure.

#include <string>
#include <string_view>

#include "gateway/api/api_error.h"
#include "gateway/responses/response_store.h"

namespace strata::gateway {

// A page of the items that the request brought along. target: with the query order (asc, desc: the newest
// first, which is the default), limit (1 to 100; 20), after (an item's id).
ApiResult<std::string> input_items_page(const StoredResponse& stored, std::string_view target);
// {"id", "object": "response", "deleted": true}
std::string deleted_response(std::string_view id);

ApiError not_in_background();
// For requests that name a stored response while responses are not stored.
ApiError storage_is_off(std::string param);
ApiError nothing_is_stored();

}  // namespace strata::gateway
