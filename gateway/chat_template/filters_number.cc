// Filters that make numbers.

#include <climits>
#include <cmath>

#include "gateway/chat_template/expressions.h"
#include "gateway/chat_template/filter_support.h"
#include "gateway/chat_template/number_text.h"

namespace strata::chat_template {
namespace {

Origin scalar_origin(const Value& value) {
  return value.is_string() ? origin_of(value.text()) : value.origin;
}

// int() of a finite float that fits.
std::optional<Int> whole_part(double value) {
  if (!(std::abs(value) < 0x1p126)) return std::nullopt;
  return static_cast<Int>(value);
}

Value to_integer(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters parameters("int", std::move(arguments), {"default", "base"});
  const Value fallback = parameters.value_or(0, Value::integer(0));
  const long base = parameters.integer_or(1, 10);
  if (base < 2 || base > 16) raise("int(): 'base' must be 2 to 16");
  if (const auto* undefined = std::get_if<Undefined>(&input.data)) raise("{}", *undefined->reason);
  std::optional<Int> result;
  if (input.is_string()) {
    result = parse_int(input.view(), static_cast<unsigned>(base));
    if (!result) {
      if (const auto number = parse_float(input.view())) result = whole_part(*number);
    }
  } else if (input.is_integer()) {
    result = input.to_int();
  } else if (input.is_number()) {
    result = whole_part(input.to_double());
  }
  return result ? Value::integer(*result, scalar_origin(input)) : fallback;
}

Value to_float(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters parameters("float", std::move(arguments), {"default"});
  if (const auto* undefined = std::get_if<Undefined>(&input.data)) raise("{}", *undefined->reason);
  if (input.is_number()) return Value::number(input.to_double(), input.origin);
  if (input.is_string()) {
    if (const auto number = parse_float(input.view())) return Value::number(*number, scalar_origin(input));
  }
  return parameters.value_or(0, Value::number(0.0));
}

void require_number(std::string_view filter, const Value& input) {
  if (const auto* undefined = std::get_if<Undefined>(&input.data)) raise("{}", *undefined->reason);
  if (!input.is_number()) raise("{}: bad operand type '{}'", filter, type_name(input));
}

Value absolute(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters none("abs", std::move(arguments), {});
  require_number("abs", input);
  if (!input.is_integer()) return Value::number(std::abs(input.to_double()), input.origin);
  return input.to_int() < 0 ? negated(input) : Value::integer(input.to_int(), input.origin);
}

Value round_number(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters parameters("round", std::move(arguments), {"precision", "method"});
  require_number("round", input);
  const int precision = static_cast<int>(std::clamp<long>(parameters.integer_or(0, 0), -400, 400));
  const MarkedText method = parameters.text_or(1, "common");
  const double value = input.to_double();
  if (method.text() == "common") {
    if (!input.is_integer()) return Value::number(round_decimals(value, precision), input.origin);
    const std::optional<Int> rounded =
        precision >= 0 ? std::optional(input.to_int()) : whole_part(round_decimals(value, precision));
    if (!rounded) raise("round(): the integer is too large");
    return Value::integer(*rounded, input.origin);
  }
  const double unit = std::pow(10.0, precision);
  if (method.text() == "ceil") return Value::number(std::ceil(value * unit) / unit, input.origin);
  if (method.text() == "floor") return Value::number(std::floor(value * unit) / unit, input.origin);
  raise("round(): method must be common, ceil or floor");
}

Value count(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("length", std::move(arguments), {});
  return Value::integer(static_cast<Int>(run.length(input)));
}

Value sum(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("sum", std::move(arguments), {"attribute", "start"});
  const auto path = parameters.has(0) ? std::optional<Value>(parameters.value(0)) : std::nullopt;
  Value total = parameters.value_or(1, Value::integer(0));
  if (total.is_string()) raise("sum() cannot sum strings, use join");
  for (const Value& element : run.elements(input)) {
    total = apply_operator(run, Operator::kAdd, total, attribute_path(run, element, path));
  }
  return total;
}

}  // namespace

const FilterTable& number_filters() {
  static const FilterTable table = {
      {"int", to_integer}, {"float", to_float}, {"abs", absolute}, {"round", round_number},
      {"length", count},   {"count", count},    {"sum", sum},
  };
  return table;
}

}  // namespace strata::chat_template
