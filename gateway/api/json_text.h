#pragma once
// JSON in and out. Reading is strict: whole UTF-8, no lone surrogates, nesting up to 128, an object at the
// top; of duplicate keys the last wins. Writing gives one line and numbers as std::to_chars has them
// (Boost.JSON would print 0.1 as 1E-1).

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "gateway/api/api_error.h"

namespace strata::gateway {

inline constexpr std::size_t kJsonDepthMax = 128;

ApiResult<boost::json::object> parse_body(std::string_view body);

std::string to_json(const boost::json::value& value);
void append_json_string(std::string& out, std::string_view text);  // quoted and escaped

// The shortest text that reads back as the same number.
std::string number_text(double value);
std::string number_text(float value);

// Input as it may stand in an error message or a log line: at most 64 characters, control characters escaped,
// quoted.
std::string snippet(std::string_view text);
// What a value is, for "expected a number, got ...".
std::string describe(const boost::json::value& value);

}  // namespace strata::gateway
