// Filters that apply other filters or tests to each element: map, select, reject and their forms on
// attributes.

#include "gateway/chat_template/filter_support.h"

namespace strata::chat_template {
namespace {

// Takes the first positional argument.
Value take_first(std::string_view filter, std::string_view what, Arguments& arguments) {
  if (arguments.positional.empty()) raise("{}() needs {}", filter, what);
  Value value = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return value;
}

std::string take_name(std::string_view filter, std::string_view what, Arguments& arguments) {
  const Value name = take_first(filter, what, arguments);
  if (!name.is_string()) raise("{}() needs {}", filter, what);
  return std::string(name.view());
}

// What is false has no elements here, whatever it is.
std::vector<Value> elements_or_none(Interpreter& run, const Value& input) {
  return truthy(input) ? run.elements(input) : std::vector<Value>();
}

Value map_attribute(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("map", std::move(arguments), {"attribute", "default"}, 1);
  std::vector<Value> out;
  for (const Value& element : elements_or_none(run, input)) {
    Value value = attribute_path(run, element, parameters.value(0));
    if (value.is_undefined() && parameters.has(1) && !parameters.value(1).is_none())
      value = parameters.value(1);
    out.push_back(std::move(value));
  }
  return run.heap().generator(std::move(out));
}

Value map(Interpreter& run, const Value& input, Arguments arguments) {
  if (arguments.positional.empty()) return map_attribute(run, input, std::move(arguments));
  const std::string filter = take_name("map", "the name of a filter", arguments);
  std::vector<Value> out;
  for (const Value& element : elements_or_none(run, input))
    out.push_back(apply_filter(run, filter, element, arguments));
  return run.heap().generator(std::move(out));
}

// Keeps the elements (or those whose attribute) for which the test, or the truth without one, is `wanted`.
template <bool kWanted, bool kOfAttribute>
Value select(Interpreter& run, const Value& input, Arguments arguments) {
  std::optional<Value> path;
  if (kOfAttribute)
    path = take_first(kWanted ? "selectattr" : "rejectattr", "the name of an attribute", arguments);
  std::optional<std::string> test;
  if (!arguments.positional.empty()) test = take_name("select", "the name of a test", arguments);
  std::vector<Value> out;
  for (Value& element : elements_or_none(run, input)) {
    const Value value = attribute_path(run, element, path);
    const bool holds = test ? apply_test(run, *test, value, arguments) : truthy(value);
    if (holds == kWanted) out.push_back(std::move(element));
  }
  return run.heap().generator(std::move(out));
}

}  // namespace

const FilterTable& selection_filters() {
  static const FilterTable table = {
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
  };
  return table;
}

}  // namespace strata::chat_template
