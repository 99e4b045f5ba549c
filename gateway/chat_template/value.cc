#include "gateway/chat_template/value.h"

#include <algorithm>
#include <cmath>

#include "gateway/chat_template/number_text.h"

namespace strata::chat_template {
namespace {

// Equal keys give equal strings: 1, 1.0 and true are one key, as in Python.
std::string key_of(const Value& key) {
  if (key.is_string()) return fmt::format("s{}", key.view());
  if (key.is_integer()) return fmt::format("n{}", int_text(key.to_int()));
  if (const double* number = std::get_if<double>(&key.data)) {
    if (std::trunc(*number) == *number && std::abs(*number) < 0x1p100) {
      return fmt::format("n{}", int_text(static_cast<Int>(*number)));
    }
    return fmt::format("f{}", float_text(*number));
  }
  if (key.is_none()) return "none";
  if (key.is_undefined()) return "undefined";
  if (const auto* sequence = key.as<Sequence>();
      sequence != nullptr && sequence->kind == Sequence::Kind::kTuple) {
    std::string out = "t";
    for (const Value& item : sequence->items) {
      const std::string part = key_of(item);
      out += fmt::format("{}:{}", part.size(), part);
    }
    return out;
  }
  raise("unhashable type: '{}'", type_name(key));
}

bool sequences_equal(Budget& budget, const Sequence& a, const Sequence& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(budget, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool dicts_equal(Budget& budget, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(budget, value, *other)) return false;
  }
  return true;
}

}  // namespace

bool Value::is_integer() const {
  return std::holds_alternative<bool>(data) || std::holds_alternative<Int>(data);
}

bool Value::is_number() const { return is_integer() || std::holds_alternative<double>(data); }

Int Value::to_int() const {
  if (const bool* flag = std::get_if<bool>(&data)) return *flag ? 1 : 0;
  return std::get<Int>(data);
}

double Value::to_double() const {
  if (const double* number = std::get_if<double>(&data)) return *number;
  return static_cast<double>(to_int());
}

const Value* Dict::find(const Value& key) const {
  const auto found = index_.find(key_of(key));
  return found == index_.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index_.find(fmt::format("s{}", key));
  return found == index_.end() ? nullptr : &entries[found->second].second;
}

void Dict::set(const Value& key, Value value) {
  const auto [at, added] = index_.emplace(key_of(key), entries.size());
  if (added) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[at->second].second = std::move(value);
  }
}

Value Heap::sequence(Sequence::Kind kind, std::vector<Value> items, Origin origin) {
  budget_.step(items.size());
  auto* object = make<Sequence>();
  object->kind = kind;
  object->items = std::move(items);
  return {object, origin};
}

std::string_view type_name(const Value& value) {
  struct Namer {
    std::string_view operator()(const Undefined&) const { return "Undefined"; }
    std::string_view operator()(const None&) const { return "NoneType"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(Int) const { return "int"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const Text&) const { return "str"; }
    std::string_view operator()(const Sequence* sequence) const {
      switch (sequence->kind) {
        case Sequence::Kind::kList:
          return "list";
        case Sequence::Kind::kTuple:
          return "tuple";
        case Sequence::Kind::kGenerator:
          return "generator";
      }
      return "list";
    }
    std::string_view operator()(const Dict*) const { return "dict"; }
    std::string_view operator()(const Namespace*) const { return "Namespace"; }
    std::string_view operator()(const Loop*) const { return "LoopContext"; }
    std::string_view operator()(const Callable*) const { return "function"; }
  };
  return std::visit(Namer{}, value.data);
}

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_integer()) return value.to_int() != 0;
  if (value.is_number()) return value.to_double() != 0.0;
  if (value.is_string()) return !value.text().empty();
  if (const auto* sequence = value.as<Sequence>()) {
    return sequence->kind == Sequence::Kind::kGenerator || !sequence->items.empty();
  }
  if (const auto* dict = value.as<Dict>()) return !dict->entries.empty();
  return true;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  const DepthGuard guard(budget);
  budget.step();
  if (a.is_integer() && b.is_integer()) return a.to_int() == b.to_int();
  if (a.is_number() && b.is_number()) return a.to_double() == b.to_double();
  if (a.data.index() != b.data.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string()) {
    if (a.view().size() == b.view().size()) budget.copy(a.view().size());
    return a.view() == b.view();
  }
  if (a.as<Sequence>() != nullptr) {
    return a.as<Sequence>() == b.as<Sequence>() ||
           (a.as<Sequence>()->kind != Sequence::Kind::kGenerator &&
            sequences_equal(budget, *a.as<Sequence>(), *b.as<Sequence>()));
  }
  if (a.as<Dict>() != nullptr)
    return a.as<Dict>() == b.as<Dict>() || dicts_equal(budget, *a.as<Dict>(), *b.as<Dict>());
  return a.as<Namespace>() == b.as<Namespace>() && a.as<Loop>() == b.as<Loop>() &&
         a.as<Callable>() == b.as<Callable>();
}

bool less(Budget& budget, const Value& a, const Value& b) {
  const DepthGuard guard(budget);
  budget.step();
  if (a.is_integer() && b.is_integer()) return a.to_int() < b.to_int();
  if (a.is_number() && b.is_number()) return a.to_double() < b.to_double();
  if (a.is_string() && b.is_string()) {  // the order of UTF-8 is the order of code points
    budget.copy(std::min(a.view().size(), b.view().size()));
    return a.view() < b.view();
  }
  for (const Value* side : {&a, &b}) {
    if (const auto* undefined = std::get_if<Undefined>(&side->data)) raise("{}", *undefined->reason);
  }
  const auto* left = a.as<Sequence>();
  const auto* right = b.as<Sequence>();
  if (left != nullptr && right != nullptr && left->kind == right->kind &&
      left->kind != Sequence::Kind::kGenerator) {
    const std::size_t common = std::min(left->items.size(), right->items.size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!equal(budget, left->items[i], right->items[i]))
        return less(budget, left->items[i], right->items[i]);
    }
    return left->items.size() < right->items.size();
  }
  raise("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
}

}  // namespace strata::chat_template
