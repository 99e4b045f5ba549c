#pragma once
// What several filters share.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gateway/chat_template/interpreter.h"

namespace strata::chat_template {

using Filter = Value (*)(Interpreter& run, const Value& input, Arguments arguments);
using FilterTable = std::unordered_map<std::string_view, Filter>;

const FilterTable& text_filters();
const FilterTable& number_filters();
const FilterTable& sequence_filters();
const FilterTable& selection_filters();

bool filter_exists(std::string_view name);
bool test_exists(std::string_view name);

// The value of an attribute argument on an element: "a.b" and "0.a" are paths, a number is a position.
Value attribute_path(Interpreter& run, const Value& element, const Value& path);
// The element itself without a path.
Value attribute_path(Interpreter& run, const Value& element, const std::optional<Value>& path);

// What case-insensitive filters compare: strings in lower case.
Value comparison_key(Budget& budget, const Value& value, bool case_sensitive);

// A text is the request's if any byte of it is.
Origin origin_of(const MarkedText& text);

}  // namespace strata::chat_template
