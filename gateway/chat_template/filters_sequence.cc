// Filters over sequences and mappings.

#include <algorithm>
#include <numeric>

#include "gateway/chat_template/filter_support.h"

namespace strata::chat_template {
namespace {

std::optional<Value> optional_value(const Parameters& parameters, std::size_t i) {
  return parameters.has(i) ? std::optional<Value>(parameters.value(i)) : std::nullopt;
}

Value to_list(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("list", std::move(arguments), {});
  return run.heap().sequence(Sequence::Kind::kList, run.elements(input), input.origin);
}

Value first(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("first", std::move(arguments), {});
  const std::vector<Value> elements = run.elements(input);
  return elements.empty() ? Value::undefined("no first item, sequence was empty") : elements.front();
}

Value last(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("last", std::move(arguments), {});
  const std::vector<Value> elements = run.elements(input);
  return elements.empty() ? Value::undefined("no last item, sequence was empty") : elements.back();
}

Value reverse(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("reverse", std::move(arguments), {});
  if (input.is_string()) return slice(run, input, Value::none(), Value::none(), Value::integer(-1));
  const std::vector<Value> elements = run.elements(input);
  return run.heap().generator({elements.rbegin(), elements.rend()});
}

Value items(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("items", std::move(arguments), {});
  if (input.is_undefined()) return run.heap().generator({});
  const auto* dict = input.as<Dict>();
  if (dict == nullptr) raise("can only get item pairs from a mapping");
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict->entries) pairs.push_back(run.heap().tuple({key, value}));
  return run.heap().generator(std::move(pairs));
}

Value fall_back(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters parameters("default", std::move(arguments), {"default_value", "boolean"});
  const bool missing = input.is_undefined() || (parameters.flag_or(1, false) && !truthy(input));
  return missing ? parameters.value_or(0, Value::literal("")) : input;
}

// Elements with the keys that they are sorted by.
using Keyed = std::vector<std::pair<std::vector<Value>, Value>>;

std::vector<Value> sorted(Interpreter& run, const Keyed& keyed, bool reversed) {
  Budget& budget = run.budget();
  const auto before = [&](const std::vector<Value>& a, const std::vector<Value>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (less(budget, a[i], b[i])) return true;
      if (i + 1 < a.size() && less(budget, b[i], a[i])) return false;
    }
    return false;
  };
  std::vector<std::size_t> order(keyed.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reversed ? before(keyed[b].first, keyed[a].first) : before(keyed[a].first, keyed[b].first);
  });
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(keyed[i].second);
  return out;
}

Value sort(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("sort", std::move(arguments), {"reverse", "case_sensitive", "attribute"});
  std::vector<std::optional<Value>> paths = {optional_value(parameters, 2)};
  if (paths[0] && paths[0]->is_string()) {  // several, the first decides
    const std::vector<MarkedText> parts = split(run.budget(), paths[0]->text(), ",", -1);
    paths.clear();
    for (const MarkedText& part : parts) paths.emplace_back(Value::string(part));
  }
  Keyed keyed;
  for (Value& element : run.elements(input)) {
    std::vector<Value> keys;
    for (const auto& path : paths) {
      keys.push_back(
          comparison_key(run.budget(), attribute_path(run, element, path), parameters.flag_or(1, false)));
    }
    keyed.emplace_back(std::move(keys), std::move(element));
  }
  return run.heap().list(sorted(run, keyed, parameters.flag_or(0, false)));
}

Value dictsort(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("dictsort", std::move(arguments), {"case_sensitive", "by", "reverse"});
  const MarkedText by = parameters.text_or(1, "key");
  if (by.text() != "key" && by.text() != "value") raise("dictsort(): 'by' must be key or value");
  const auto* dict = input.as<Dict>();
  if (dict == nullptr) raise("dictsort needs a mapping, not {}", type_name(input));
  Keyed keyed;
  for (const auto& [key, value] : dict->entries) {
    std::vector<Value> keys = {
        comparison_key(run.budget(), by.text() == "key" ? key : value, parameters.flag_or(0, false))};
    keyed.emplace_back(std::move(keys), run.heap().tuple({key, value}));
  }
  return run.heap().list(sorted(run, keyed, parameters.flag_or(2, false)));
}

Value unique(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("unique", std::move(arguments), {"case_sensitive", "attribute"});
  auto* seen = run.heap().make<Dict>();
  std::vector<Value> out;
  for (Value& element : run.elements(input)) {
    const Value key =
        comparison_key(run.budget(), attribute_path(run, element, optional_value(parameters, 1)),
                       parameters.flag_or(0, false));
    if (seen->find(key) != nullptr) continue;
    seen->set(key, Value::none());
    out.push_back(std::move(element));
  }
  return run.heap().generator(std::move(out));
}

template <bool kLargest>
Value extreme(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters(kLargest ? "max" : "min", std::move(arguments),
                              {"case_sensitive", "attribute"});
  std::optional<std::pair<Value, Value>> best;  // key, element
  for (Value& element : run.elements(input)) {
    Value key = comparison_key(run.budget(), attribute_path(run, element, optional_value(parameters, 1)),
                               parameters.flag_or(0, false));
    const bool better =
        !best || (kLargest ? less(run.budget(), best->first, key) : less(run.budget(), key, best->first));
    if (better) best = {std::move(key), std::move(element)};
  }
  return best ? best->second : Value::undefined("no aggregated item, sequence was empty");
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable table = {
      {"list", to_list},      {"first", first},       {"last", last},          {"reverse", reverse},
      {"items", items},       {"default", fall_back}, {"d", fall_back},        {"sort", sort},
      {"dictsort", dictsort}, {"unique", unique},     {"min", extreme<false>}, {"max", extreme<true>},
  };
  return table;
}

}  // namespace strata::chat_template
