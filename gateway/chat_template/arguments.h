#pragma once
// Arguments of calls, filters and tests, and their assignment to parameters by Python's rules.

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/chat_template/value.h"

namespace strata::chat_template {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The parameters of one call by position, with checked access. Errors name the function and the parameter.
class Parameters {
 public:
  // At least `required` of the names must be given. Raises for too many, unknown and doubled ones.
  Parameters(std::string_view function, Arguments arguments, std::initializer_list<std::string_view> names,
             std::size_t required = 0);

  bool has(std::size_t i) const { return values_[i].has_value(); }
  const Value& value(std::size_t i) const { return *values_[i]; }
  Value value_or(std::size_t i, Value fallback) const { return has(i) ? value(i) : std::move(fallback); }
  bool flag_or(std::size_t i, bool fallback) const { return has(i) ? truthy(value(i)) : fallback; }
  const MarkedText& text(std::size_t i) const;
  MarkedText text_or(std::size_t i, std::string_view fallback) const;
  long integer_or(std::size_t i, long fallback) const;
  // Absent or none: nullopt.
  std::optional<MarkedText> optional_text(std::size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace strata::chat_template
