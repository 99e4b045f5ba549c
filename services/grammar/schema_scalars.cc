// Strings and numbers of a schema.
#include <algorithm>
#include <boost/json/value.hpp>
#include <cmath>
#include <limits>

#include "services/grammar/limits.h"
#include "services/grammar/number_range.h"
#include "services/grammar/schema_compiler.h"

namespace strata::grammar {
namespace {

using boost::json::object;
using boost::json::value;

std::string_view text(boost::json::string_view view) { return {view.data(), view.size()}; }

struct Bounds {
  std::optional<NumberBound> min, max;
};

// A whole number that int64 holds, however it is written.
std::optional<int64_t> whole_number(const value& v) {
  if (v.is_int64()) return v.get_int64();
  if (!v.is_double()) return std::nullopt;
  const double number = v.get_double();
  if (std::floor(number) != number || std::abs(number) > 9.0e18) return std::nullopt;
  return static_cast<int64_t>(number);
}

// The stricter of a keyword and its exclusive form. what: "minimum" or "maximum".
Result<std::optional<NumberBound>> bound(const object& schema, std::string_view what, bool integer,
                                         const std::string& at) {
  const bool is_min = what == "minimum";
  const std::string exclusive = is_min ? "exclusiveMinimum" : "exclusiveMaximum";
  std::optional<NumberBound> result;
  bool old_exclusive = false;
  for (const std::string_view keyword : {std::string_view(exclusive), what}) {
    const value* v = schema.if_contains(keyword);
    if (v == nullptr) continue;
    if (keyword == exclusive && v->is_bool()) {  // drafts before 6: says how the other one is meant
      old_exclusive = v->get_bool();
      continue;
    }
    if (!v->is_number())
      return fail(Code::kInvalidArgument, "schema at {}: \"{}\" must be a number", at, keyword);
    NumberBound found{0, keyword == exclusive || old_exclusive};
    if (const auto whole = whole_number(*v)) {
      found.value = *whole;
    } else if (integer && v->is_double() && std::abs(v->get_double()) < 9.0e18) {
      // Integers from 2.5 on are those from 3 on.
      found = {static_cast<int64_t>(is_min ? std::ceil(v->get_double()) : std::floor(v->get_double())),
               false};
    } else {
      return fail(Code::kInvalidArgument, "schema at {}: \"{}\" must be a whole number{}", at, keyword,
                  integer ? " of 64 bits" : "");
    }
    const bool stricter = !result || (is_min ? found.value > result->value : found.value < result->value) ||
                          (found.value == result->value && found.exclusive);
    if (stricter) result = found;
  }
  return result;
}

Result<Bounds> bounds_of(const object& schema, bool integer, const std::string& at) {
  Bounds result;
  TRY(result.min, bound(schema, "minimum", integer, at));
  TRY(result.max, bound(schema, "maximum", integer, at));
  return result;
}

std::string_view format_of(const object& schema) {
  const value* format = schema.if_contains("format");
  return format != nullptr && format->is_string() ? text(format->get_string()) : std::string_view();
}

}  // namespace

Result<NodeId> SchemaCompiler::string_value(const object& schema, const std::string& at) {
  const value* pattern = schema.if_contains("pattern");
  const value* format = schema.if_contains("format");
  if (pattern != nullptr) {
    if (!pattern->is_string()) return error(at, "\"pattern\" must be a string");
    if (format != nullptr) return error(at, "\"format\" beside \"pattern\" is not supported");
    return pattern_value(text(pattern->get_string()), "pattern", schema, at);
  }
  if (format != nullptr) {
    if (!format->is_string()) return error(at, "\"format\" must be a string");
    const auto known = format_pattern(text(format->get_string()));
    if (!known) return error(at, "\"format\" \"{}\" is not supported", text(format->get_string()));
    return pattern_value(*known, "format", schema, at);
  }
  TRY(const std::optional<uint64_t> min, count(schema, "minLength", at));
  TRY(const std::optional<uint64_t> max, count(schema, "maxLength", at));
  if (!min && !max) return json_.string();
  if (min.value_or(0) > kRepeatMax) return error(at, "\"minLength\" above {} is not supported", kRepeatMax);
  if (min && max && *min > *max) return error(at, "\"minLength\" is above \"maxLength\"");
  // More than a million characters are more than any answer holds.
  const uint32_t most = max && *max <= kRepeatMax ? static_cast<uint32_t>(*max) : kUnbounded;
  return json_.quoted(rules_.repeat(json_.character(), static_cast<uint32_t>(min.value_or(0)), most));
}

Result<NodeId> SchemaCompiler::pattern_value(std::string_view pattern, std::string_view keyword,
                                             const object& schema, const std::string& at) {
  Result<Regex> regex = parse_regex(pattern);
  if (!regex) {
    return fail(regex.error().code(), "schema at {}: \"{}\" {}", at, keyword, regex.error().message());
  }
  TRY(const std::optional<uint64_t> min, count(schema, "minLength", at));
  TRY(const std::optional<uint64_t> max, count(schema, "maxLength", at));
  const RegexLength length = length_of(*regex);
  // One set of characters repeated: the bounds go into the repetition.
  Regex* whole = &*regex;
  while (whole->kind == Regex::Kind::kSequence && whole->parts.size() == 1) whole = &whole->parts[0];
  if (whole->kind == Regex::Kind::kRepeat && whole->parts[0].kind == Regex::Kind::kSet) {
    if (min)
      whole->min =
          static_cast<uint32_t>(std::max<uint64_t>(whole->min, std::min<uint64_t>(*min, kRepeatMax)));
    if (max && *max <= kRepeatMax) whole->max = std::min(whole->max, static_cast<uint32_t>(*max));
    if (whole->min > whole->max) return error(at, "no text of \"{}\" has the length asked for", keyword);
  } else if ((min && *min > length.min) || (max && *max < length.max)) {
    return error(at, "\"{}\" beside \"{}\" is supported only where the one implies the other",
                 min && *min > length.min ? "minLength" : "maxLength", keyword);
  }
  return json_.quoted(
      add_regex(rules_, *regex, [this](const CodePoints& set) { return json_.written(set); }));
}

Result<NodeId> SchemaCompiler::integer_value(const object& schema, const std::string& at) {
  if (const value* multiple = schema.if_contains("multipleOf");
      multiple != nullptr && whole_number(*multiple) != 1) {
    return error(at, "\"multipleOf\" is not supported");
  }
  TRY(Bounds bounds, bounds_of(schema, true, at));
  const std::string_view format = format_of(schema);
  if (format == "int32") {
    constexpr int64_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
    if (!bounds.min || bounds.min->value < kLow) bounds.min = NumberBound{kLow};
    if (!bounds.max || bounds.max->value > kHigh) bounds.max = NumberBound{kHigh};
  } else if (!format.empty() && format != "int64") {
    return error(at, "\"format\" \"{}\" of an integer is not supported", format);
  }
  std::optional<int64_t> min, max;
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                    kHighest = std::numeric_limits<int64_t>::max();
  const bool nothing = (bounds.min && bounds.min->exclusive && bounds.min->value == kHighest) ||
                       (bounds.max && bounds.max->exclusive && bounds.max->value == kLowest);
  if (!nothing && bounds.min) min = bounds.min->value + (bounds.min->exclusive ? 1 : 0);
  if (!nothing && bounds.max) max = bounds.max->value - (bounds.max->exclusive ? 1 : 0);
  if (nothing || (min && max && *min > *max)) return error(at, "no integer lies between the bounds");
  return add_integer_range(rules_, min, max);
}

Result<NodeId> SchemaCompiler::number_value(const object& schema, const std::string& at) {
  if (const value* multiple = schema.if_contains("multipleOf"); multiple != nullptr) {
    if (whole_number(*multiple) != 1) return error(at, "\"multipleOf\" is not supported");
    return integer_value(schema, at);
  }
  if (const std::string_view format = format_of(schema);
      !format.empty() && format != "float" && format != "double") {
    return error(at, "\"format\" \"{}\" of a number is not supported", format);
  }
  TRY(const Bounds bounds, bounds_of(schema, false, at));
  if (!bounds.min && !bounds.max) return json_.number();
  for (const auto& side : {bounds.min, bounds.max}) {
    if (side && (side->value > kIntegerDefaultMax || side->value < -kIntegerDefaultMax)) {
      return error(at, "bounds of more than 16 digits are not supported");
    }
  }
  if (bounds.min && bounds.max &&
      (bounds.min->value > bounds.max->value ||
       (bounds.min->value == bounds.max->value && (bounds.min->exclusive || bounds.max->exclusive)))) {
    return error(at, "no number lies between the bounds");
  }
  return add_number_range(rules_, bounds.min, bounds.max);
}

}  // namespace strata::grammar
