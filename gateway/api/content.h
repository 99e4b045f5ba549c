#pragma once
// What a message says: a string, or parts, in the forms of either dialect.

#include <boost/json/value.hpp>
#include <string>

#include "gateway/api/api_error.h"

namespace strata::gateway {

struct Content {
  std::string text = {};
  bool present = false;    // neither left out nor null
  bool has_image = false;  // a note stands in its place
};

struct ContentRules {
  bool unknown_parts_become_notes = false;  // else they are refused
};

// value: nullptr if left out. Parts are put together without a separator. where: "messages[2].content", for
// errors.
ApiResult<Content> read_content(const boost::json::value* value, const std::string& where,
                                ContentRules rules = {});
// One part.
ApiResult<Content> read_part(const boost::json::value& value, const std::string& where,
                             ContentRules rules = {});

// Some agents put a line into the system prompt that changes with every request; it would spoil every prefix
// (rule B11).
std::string without_billing_lines(const std::string& text);

}  // namespace strata::gateway
