#include "gateway/api/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "gateway/api/json_text.h"

namespace strata::gateway {

namespace {

constexpr double kExactIntegerMax =
    9007199254740992.0;  // 2^53: beyond it a double no longer names one whole number

std::optional<double> as_double(const boost::json::value& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return {};
}

}  // namespace

std::optional<int64_t> whole_number(const boost::json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64() && value.get_uint64() <= uint64_t{std::numeric_limits<int64_t>::max()}) {
    return static_cast<int64_t>(value.get_uint64());
  }
  if (value.is_double()) {
    double number = value.get_double();
    if (std::trunc(number) == number && std::fabs(number) <= kExactIntegerMax)
      return static_cast<int64_t>(number);
  }
  return {};
}

const boost::json::value* FieldReader::find(std::string_view name) const {
  const boost::json::value* value = object_->if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<double> FieldReader::number(std::string_view name, NumberRange range) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return {};
  auto number = as_double(*value);
  if (!number) {
    fail_type(name, "a number", *value);
    return {};
  }
  bool fits = *number <= range.max && (range.above_min ? *number > range.min : *number >= range.min);
  if (!fits) {
    fail(name, fmt::format("{}{} must be {} {} and at most {}, got {}", prefix_, name,
                           range.above_min ? "above" : "at least", number_text(range.min),
                           number_text(range.max), describe(*value)));
    return {};
  }
  return number;
}

std::optional<int64_t> FieldReader::integer(std::string_view name, int64_t min, int64_t max) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return {};
  auto number = whole_number(*value);
  if (!number) {
    fail_type(name, "a whole number", *value);
    return {};
  }
  if (*number < min || *number > max) {
    fail(name,
         fmt::format("{}{} must be a whole number from {} to {}, got {}", prefix_, name, min, max, *number));
    return {};
  }
  return number;
}

std::optional<bool> FieldReader::boolean(std::string_view name) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_bool()) {
    fail_type(name, "true or false", *value);
    return {};
  }
  return value->get_bool();
}

std::optional<std::string_view> FieldReader::string(std::string_view name) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) {
    fail_type(name, "a string", *value);
    return {};
  }
  return std::string_view(value->get_string());
}

const boost::json::object* FieldReader::object(std::string_view name) {
  const boost::json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    fail_type(name, "an object", *value);
    return nullptr;
  }
  return &value->get_object();
}

void FieldReader::fail(std::string_view name, std::string message) {
  fail(invalid_request(std::move(message), prefix_ + std::string(name)));
}

void FieldReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::fail_type(std::string_view name, std::string_view expected, const boost::json::value& got) {
  fail(name, fmt::format("{}{} must be {}, got {}", prefix_, name, expected, describe(got)));
}

}  // namespace strata::gateway
