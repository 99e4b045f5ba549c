// Methods by the type of the object; those of dictionaries, lists and loops.

#include "gateway/chat_template/methods.h"

#include <algorithm>

namespace strata::chat_template {
namespace {

Value get(Interpreter&, const Value& self, Arguments arguments) {
  const Parameters parameters("get", std::move(arguments), {"key", "default"}, 1);
  const Value* value = self.as<Dict>()->find(parameters.value(0));
  return value != nullptr ? *value : parameters.value_or(1, Value::none());
}

enum class View : unsigned char { kKeys, kValues, kItems };

template <View kView>
Value view(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters none("dict method", std::move(arguments), {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.as<Dict>()->entries) {
    if (kView == View::kItems) {
      out.push_back(run.heap().tuple({key, value}));
    } else {
      out.push_back(kView == View::kKeys ? key : value);
    }
  }
  return run.heap().sequence(Sequence::Kind::kList, std::move(out), self.origin);
}

Value copy(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters none("copy", std::move(arguments), {});
  auto* dict = run.heap().make<Dict>();
  run.budget().step(self.as<Dict>()->entries.size());
  for (const auto& [key, value] : self.as<Dict>()->entries) dict->set(key, value);
  return {dict, self.origin};
}

Value append(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("append", std::move(arguments), {"object"}, 1);
  run.budget().step();
  self.as<Sequence>()->items.push_back(parameters.value(0));
  return Value::none();
}

Value pop(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("pop", std::move(arguments), {"index"});
  auto& items = self.as<Sequence>()->items;
  const auto count = static_cast<long>(items.size());
  long at = parameters.integer_or(0, -1);
  if (at < 0) at += count;
  if (at < 0 || at >= count) raise("pop index out of range");
  run.budget().step(static_cast<uint64_t>(count - at));
  Value value = std::move(items[static_cast<std::size_t>(at)]);
  items.erase(items.begin() + at);
  return value;
}

Value index(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("index", std::move(arguments), {"value"}, 1);
  const auto& items = self.as<Sequence>()->items;
  const auto at = std::find_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(run.budget(), item, parameters.value(0));
  });
  if (at == items.end()) raise("the value is not in the list");
  return Value::integer(at - items.begin());
}

Value count(Interpreter& run, const Value& self, Arguments arguments) {
  const Parameters parameters("count", std::move(arguments), {"value"}, 1);
  const auto& items = self.as<Sequence>()->items;
  return Value::integer(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(run.budget(), item, parameters.value(0));
  }));
}

Value cycle(Interpreter&, const Value& self, Arguments arguments) {
  if (arguments.positional.empty()) raise("cycle() needs values");
  return arguments.positional[self.as<Loop>()->index % arguments.positional.size()];
}

Value changed(Interpreter& run, const Value& self, Arguments arguments) {
  auto& before = self.as<Loop>()->changed_values;
  const auto& now = arguments.positional;
  const bool same = std::equal(before.begin(), before.end(), now.begin(), now.end(),
                               [&](const Value& a, const Value& b) { return equal(run.budget(), a, b); });
  if (self.as<Loop>()->changed_known && same) return Value::boolean(false);
  self.as<Loop>()->changed_known = true;
  before = std::move(arguments.positional);
  return Value::boolean(true);
}

const MethodTable& dict_methods() {
  static const MethodTable table = {{"get", get},
                                    {"keys", view<View::kKeys>},
                                    {"values", view<View::kValues>},
                                    {"items", view<View::kItems>},
                                    {"copy", copy}};
  return table;
}

const MethodTable& list_methods() {
  static const MethodTable table = {{"append", append}, {"pop", pop}, {"index", index}, {"count", count}};
  return table;
}

const MethodTable& tuple_methods() {
  static const MethodTable table = {{"index", index}, {"count", count}};
  return table;
}

const MethodTable& loop_methods() {
  static const MethodTable table = {{"cycle", cycle}, {"changed", changed}};
  return table;
}

const MethodTable* methods_of(const Value& object) {
  if (object.is_string()) return &text_methods();
  if (object.as<Dict>() != nullptr) return &dict_methods();
  if (object.as<Loop>() != nullptr) return &loop_methods();
  const auto* sequence = object.as<Sequence>();
  if (sequence == nullptr || sequence->kind == Sequence::Kind::kGenerator) return nullptr;
  return sequence->kind == Sequence::Kind::kList ? &list_methods() : &tuple_methods();
}

}  // namespace

Method find_method(const Value& object, std::string_view name) {
  const MethodTable* table = methods_of(object);
  if (table == nullptr) return nullptr;
  const auto at = table->find(name);
  return at == table->end() ? nullptr : at->second;
}

}  // namespace strata::chat_template
