#pragma once
// Reads the typed fields of a JSON object and remembers the first thing that was wrong, with the field's full
// name. A field that is null counts as left out.
//
//   FieldReader fields(body);
//   auto temperature = fields.number("temperature", {.min = 0, .max = 2});
//   if (fields.failed()) return fields.error();

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/api/api_error.h"

namespace strata::gateway {

struct NumberRange {
  double min = 0;
  double max = 0;
  bool above_min = false;  // min itself is not allowed
};

class FieldReader {
 public:
  // The object must outlive the reader. prefix: "stream_options." for nested objects.
  explicit FieldReader(const boost::json::object& object, std::string prefix = {})
      : object_(&object), prefix_(std::move(prefix)) {}

  // As clients know it: "stream_options.include_usage".
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }
  // nullptr: absent or null.
  const boost::json::value* find(std::string_view name) const;

  std::optional<double> number(std::string_view name, NumberRange range);
  // Whole numbers only; 7.0 counts as 7.
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::string_view> string(std::string_view name);
  const boost::json::object* object(std::string_view name);

  void fail(std::string_view name, std::string message);
  void fail(ApiError error);
  bool failed() const { return error_.has_value(); }
  tl::unexpected<ApiError> error() const { return tl::unexpected(*error_); }

 private:
  void fail_type(std::string_view name, std::string_view expected, const boost::json::value& got);

  const boost::json::object* object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// The whole number that a JSON number stands for.
std::optional<int64_t> whole_number(const boost::json::value& value);

}  // namespace strata::gateway
