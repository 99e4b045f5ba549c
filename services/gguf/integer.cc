#include "services/gguf/integer.h"

#include <fmt/format.h>

#include "services/gguf/printable.h"

namespace strata::gguf {

std::optional<uint64_t> unsigned_value(const Value& value, uint64_t max) {
  if (const auto* number = std::get_if<uint64_t>(&value.data))
    return *number <= max ? std::optional(*number) : std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&value.data)) {
    return *number >= 0 && static_cast<uint64_t>(*number) <= max
               ? std::optional(static_cast<uint64_t>(*number))
               : std::nullopt;
  }
  return std::nullopt;
}

std::optional<int64_t> signed_value(const Value& value) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (const auto* number = std::get_if<int64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value.data)) {
    return *number <= kMax ? std::optional(static_cast<int64_t>(*number)) : std::nullopt;
  }
  return std::nullopt;
}

std::string describe_value(const Value& value) {
  struct Describe {
    std::string operator()(uint64_t number) const { return fmt::format("{}", number); }
    std::string operator()(int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::string_view text) const { return fmt::format("'{}'", printable(text)); }
    std::string operator()(const std::shared_ptr<const Array>& array) const {
      return fmt::format("of {} {}", array->count, value_type_name(array->element));
    }
  };
  return fmt::format("{} {}", value_type_name(value.type), std::visit(Describe(), value.data));
}

}  // namespace strata::gguf
