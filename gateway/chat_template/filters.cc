// Filters by name, and what they share.

#include <algorithm>

#include "gateway/chat_template/filter_support.h"
#include "gateway/chat_template/number_text.h"

namespace strata::chat_template {
namespace {

Filter find_filter(std::string_view name) {
  for (const FilterTable* table :
       {&text_filters(), &number_filters(), &sequence_filters(), &selection_filters()}) {
    if (const auto at = table->find(name); at != table->end()) return at->second;
  }
  return nullptr;
}

}  // namespace

bool filter_exists(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Interpreter& run, const std::string& name, const Value& input, Arguments arguments) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) raise("no filter named '{}'", name);
  const DepthGuard guard(run.budget());
  run.budget().step();
  return filter(run, input, std::move(arguments));
}

Value attribute_path(Interpreter& run, const Value& element, const Value& path) {
  if (!path.is_string()) return run.item(element, path);
  Value value = element;
  for (std::string_view rest = path.view(); !rest.empty();) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    rest.remove_prefix(std::min(dot + 1, rest.size()));
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    const auto index = number ? parse_int(part) : std::nullopt;
    value = run.item(value, index ? Value::integer(*index) : Value::literal(part));
  }
  return value;
}

Value attribute_path(Interpreter& run, const Value& element, const std::optional<Value>& path) {
  return path && !path->is_none() ? attribute_path(run, element, *path) : element;
}

Value comparison_key(Budget& budget, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return Value::string(change_case(budget, value.text(), Case::kLower));
}

Origin origin_of(const MarkedText& text) {
  const bool request = std::any_of(text.runs().begin(), text.runs().end(),
                                   [](const auto& run) { return run.origin == Origin::kRequest; });
  return request ? Origin::kRequest : Origin::kTemplate;
}

}  // namespace strata::chat_template
