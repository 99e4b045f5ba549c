#include "gateway/chat_template/interpreter.h"

#include <algorithm>

namespace strata::chat_template {
namespace {

struct BoundMethod final : Callable {
  BoundMethod(std::string called, Value on, Method what)
      : Callable(std::move(called)), object(std::move(on)), method(what) {}
  Value call(Interpreter& run, Arguments arguments) override {
    return method(run, object, std::move(arguments));
  }
  const Value object;
  const Method method;
};

[[noreturn]] void raise_undefined(const Value& value) {
  raise("{}", *std::get<Undefined>(value.data).reason);
}

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(object), name));
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto count = static_cast<Int>(loop.items.size());
  const auto index = static_cast<Int>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem") {
    return index == 0 ? Value::undefined("there is no previous item") : loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    return index + 1 == count ? Value::undefined("there is no next item") : loop.items[loop.index + 1];
  }
  return Value::undefined(fmt::format("'loop' has no attribute '{}'", name));
}

// A position from the end is negative; nullopt: outside.
std::optional<std::size_t> position(Int index, std::size_t size) {
  const auto count = static_cast<Int>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value character_of(Interpreter& run, const MarkedText& text, Int index) {
  run.budget().walk(text.size());
  const CharacterIndex characters(text.text());
  const auto at = position(index, characters.count());
  if (!at) return Value::undefined("string index out of range");
  return Value::string(text.slice(characters.begin(*at), characters.begin(*at + 1)));
}

}  // namespace

void Scope::set(Name name, Value value) {
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(Name name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Interpreter::Interpreter(const Program& program, Budget& budget, std::time_t now)
    : program_(program), budget_(budget), heap_(budget), now_(now), scope_(&globals_) {}

void Interpreter::define_in(Scope& scope, std::string_view name, Value value) {
  const auto at = std::find(program_.names.begin(), program_.names.end(), name);
  if (at != program_.names.end()) scope.set(static_cast<Name>(at - program_.names.begin()), std::move(value));
}

MarkedText Interpreter::run() {
  try {
    return capture(program_.body, &globals_);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = line_;
    throw;
  }
}

Value Interpreter::evaluate(const Expression& expression) {
  const DepthGuard guard(budget_);
  budget_.step();
  const uint32_t outer_line = std::exchange(line_, expression.line);
  Value value = expression.evaluate(*this);
  line_ = outer_line;  // not when an exception passes: its line is the inner one
  return value;
}

Flow Interpreter::execute(const Block& block) {
  const DepthGuard guard(budget_);
  for (const auto& statement : block) {
    budget_.step();
    const uint32_t outer_line = std::exchange(line_, statement->line);
    const Flow flow = statement->execute(*this);
    line_ = outer_line;
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Arguments Interpreter::evaluate(const CallArguments& arguments) {
  Arguments out;
  for (const auto& expression : arguments.positional) out.positional.push_back(evaluate(*expression));
  for (const auto& [name, expression] : arguments.named) out.named.emplace_back(name, evaluate(*expression));
  if (arguments.more_positional) {
    for (Value& value : elements(evaluate(*arguments.more_positional)))
      out.positional.push_back(std::move(value));
  }
  if (arguments.more_named) {
    const Value more = evaluate(*arguments.more_named);
    const auto* dict = more.as<Dict>();
    if (dict == nullptr) raise("the argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [key, value] : dict->entries) {
      if (!key.is_string()) raise("keywords must be strings");
      out.named.emplace_back(key.view(), value);
    }
  }
  return out;
}

Value Interpreter::variable(Name name) {
  if (const Value* value = scope_->find(name)) return *value;
  if (auto function = global_function(*this, spelling(name))) {
    globals_.set(name, *function);
    return *function;
  }
  return Value::undefined(fmt::format("'{}' is undefined", spelling(name)));
}

void Interpreter::assign(const Target& target, Value value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->set(target.name, std::move(value));
      return;
    case Target::Kind::kAttribute: {
      const Value owner = variable(target.name);
      auto* space = owner.as<Namespace>();
      if (space == nullptr)
        raise("cannot assign an attribute of '{}', which is no namespace", spelling(target.name));
      space->attributes.set(Value::literal(target.attribute), std::move(value));
      return;
    }
    case Target::Kind::kTuple: {
      std::vector<Value> values = elements(value);
      if (values.size() != target.parts.size()) {
        raise("cannot unpack {} values into {}", values.size(), target.parts.size());
      }
      for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], std::move(values[i]));
      return;
    }
  }
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) raise_undefined(callee);
  auto* callable = callee.as<Callable>();
  if (callable == nullptr) raise("'{}' object is not callable", type_name(callee));
  const DepthGuard guard(budget_);
  return callable->call(*this, std::move(arguments));
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) raise_undefined(object);
  if (const Method method = find_method(object, name)) {
    return {heap_.make<BoundMethod>(std::string(name), object, method)};
  }
  if (const auto* loop = object.as<Loop>()) return loop_attribute(*loop, name);
  const Dict* dict = object.as<Dict>();
  if (const auto* space = object.as<Namespace>()) dict = &space->attributes;
  const Value* value = dict == nullptr ? nullptr : dict->find(name);
  return value == nullptr ? missing_attribute(object, name) : *value;
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) raise_undefined(object);
  if (const auto* dict = object.as<Dict>()) {
    if (const Value* value = dict->find(key)) return *value;
  } else if (key.is_integer()) {
    if (object.is_string()) return character_of(*this, object.text(), key.to_int());
    if (const auto* sequence = object.as<Sequence>();
        sequence != nullptr && sequence->kind != Sequence::Kind::kGenerator) {
      const auto at = position(key.to_int(), sequence->items.size());
      return at ? sequence->items[*at]
                : Value::undefined(fmt::format("{} index out of range", type_name(object)));
    }
  }
  if (key.is_string()) return attribute(object, key.view());
  return Value::undefined(fmt::format("'{} object' has no such element", type_name(object)));
}

std::vector<Value> Interpreter::elements(const Value& iterable) {
  if (iterable.is_undefined()) return {};
  if (iterable.is_string()) {
    std::vector<Value> out;
    for (MarkedText& character : characters(budget_, iterable.text()))
      out.push_back(Value::string(std::move(character)));
    return out;
  }
  if (auto* sequence = iterable.as<Sequence>()) {
    budget_.step(sequence->items.size());
    if (sequence->kind == Sequence::Kind::kGenerator) return std::exchange(sequence->items, {});
    return sequence->items;
  }
  if (const auto* dict = iterable.as<Dict>()) {
    budget_.step(dict->entries.size());
    std::vector<Value> keys;
    for (const auto& [key, value] : dict->entries) keys.push_back(key);
    return keys;
  }
  raise("'{}' object is not iterable", type_name(iterable));
}

std::size_t Interpreter::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    budget_.walk(value.text().size());
    return character_count(value.view());
  }
  if (const auto* sequence = value.as<Sequence>();
      sequence != nullptr && sequence->kind != Sequence::Kind::kGenerator) {
    return sequence->items.size();
  }
  if (const auto* dict = value.as<Dict>()) return dict->entries.size();
  if (const auto* loop = value.as<Loop>()) return loop->items.size();
  raise("object of type '{}' has no len()", type_name(value));
}

bool Interpreter::contains(const Value& container, const Value& wanted) {
  if (container.is_string()) {
    if (wanted.is_undefined()) raise_undefined(wanted);
    if (!wanted.is_string())
      raise("'in <string>' requires string as left operand, not {}", type_name(wanted));
    return find_in(budget_, container.view(), wanted.view()) != std::string_view::npos;
  }
  if (const auto* dict = container.as<Dict>()) return dict->find(wanted) != nullptr;
  if (!container.is_undefined() && container.as<Sequence>() == nullptr) {
    raise("argument of type '{}' is not iterable", type_name(container));
  }
  const std::vector<Value> values = elements(container);
  return std::any_of(values.begin(), values.end(),
                     [&](const Value& value) { return equal(budget_, value, wanted); });
}

void Interpreter::print(const Value& value) {
  if (value.is_string()) {
    output_->append(value.text());
  } else {
    output_->append(to_text(budget_, value));
  }
}

MarkedText Interpreter::capture(const Block& block, Scope* outer) {
  TextBuilder text(budget_);
  TextBuilder* outside = std::exchange(output_, &text);
  const ScopeGuard guard(*this, heap_.make<Scope>(outer));
  execute(block);
  output_ = outside;
  return text.take();
}

}  // namespace strata::chat_template
