#include "gateway/chat_template/statements.h"

#include "gateway/chat_template/interpreter.h"

namespace strata::chat_template {
namespace {

// A macro, or the body of a call block. The tree that it points into outlives every rendering.
class Macro final : public Callable {
 public:
  Macro(const MacroSignature& signature, const Block& body, Scope* scope)
      : Callable(signature.name), signature_(signature), body_(body), scope_(scope) {}

  Value call(Interpreter& run, Arguments arguments) override {
    auto* scope = run.heap().make<Scope>(scope_);
    {
      const Interpreter::ScopeGuard guard(run, scope);
      bind(run, *scope, std::move(arguments));
    }
    return Value::string(run.capture(body_, scope));
  }

 private:
  void bind(Interpreter& run, Scope& scope, Arguments arguments) const {
    std::vector<Value> more;
    const auto& parameters = signature_.parameters;
    std::vector<bool> given(parameters.size());
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
      if (i < parameters.size()) {
        scope.set(parameters[i].first, std::move(arguments.positional[i]));
        given[i] = true;
      } else {
        more.push_back(std::move(arguments.positional[i]));
      }
    }
    auto* more_named = run.heap().make<Dict>();
    Value caller = Value::undefined("no caller is defined");
    for (auto& [keyword, value] : arguments.named)
      bind_named(run, scope, keyword, std::move(value), given, *more_named, caller);
    // Defaults may refer to the parameters before them.
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (given[i]) continue;
      const auto& [parameter, fallback] = parameters[i];
      scope.set(parameter, fallback ? run.evaluate(*fallback)
                                    : Value::undefined(fmt::format("parameter '{}' was not provided",
                                                                   run.spelling(parameter))));
    }
    if (!more.empty() && !signature_.takes_more_positional) {
      raise("macro '{}' takes not more than {} argument(s)", name, parameters.size());
    }
    if (!more_named->entries.empty() && !signature_.takes_more_named) {
      raise("macro '{}' takes no keyword argument '{}'", name, more_named->entries.front().first.view());
    }
    const auto define = [&](bool wanted, std::string_view variable, Value value) {
      if (wanted) run.define_in(scope, variable, std::move(value));
    };
    define(signature_.takes_caller, "caller", std::move(caller));
    define(signature_.takes_more_positional, "varargs", run.heap().tuple(std::move(more)));
    define(signature_.takes_more_named, "kwargs", {more_named});
  }

  void bind_named(Interpreter& run, Scope& scope, const std::string& keyword, Value value,
                  std::vector<bool>& given, Dict& more, Value& caller) const {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Name parameter = signature_.parameters[i].first;
      if (run.spelling(parameter) != keyword) continue;
      if (given[i]) raise("macro '{}' got the argument '{}' twice", name, keyword);
      given[i] = true;
      scope.set(parameter, std::move(value));
      return;
    }
    if (keyword == "caller" && signature_.takes_caller) {
      caller = std::move(value);
    } else {
      more.set(Value::literal(keyword), std::move(value));
    }
  }

  const MacroSignature& signature_;
  const Block& body_;
  Scope* const scope_;
};

Value make_macro(Interpreter& run, const MacroSignature& signature, const Block& body) {
  for (Scope* scope = run.scope(); scope != nullptr && !scope->captured; scope = scope->parent)
    scope->captured = true;
  return {run.heap().make<Macro>(signature, body, run.scope())};
}

// Elements of a loop that its filter lets pass.
std::vector<Value> loop_items(Interpreter& run, const ForStatement& loop) {
  std::vector<Value> items = run.elements(run.evaluate(*loop.items));
  if (!loop.filter) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const Interpreter::ScopeGuard guard(run, run.heap().make<Scope>(run.scope()));
    run.assign(loop.target, item);
    if (truthy(run.evaluate(*loop.filter))) kept.push_back(std::move(item));
  }
  return kept;
}

}  // namespace

Flow DataStatement::execute(Interpreter& run) const {
  run.print_literal(text);
  return Flow::kNext;
}

Flow PrintStatement::execute(Interpreter& run) const {
  run.print(run.evaluate(*value));
  return Flow::kNext;
}

Flow IfStatement::execute(Interpreter& run) const {
  for (const auto& [test, body] : branches) {
    if (truthy(run.evaluate(*test))) return run.execute(body);
  }
  return run.execute(otherwise);
}

Flow ForStatement::execute(Interpreter& run) const {
  std::vector<Value> values = loop_items(run, *this);
  if (values.empty()) return run.execute(otherwise);
  auto* loop = run.heap().make<Loop>();
  loop->items = std::move(values);
  Scope* scope = nullptr;
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    // Every round has variables of its own; the old scope is used again unless a macro may still look into
    // it.
    if (scope == nullptr || scope->captured) scope = run.heap().make<Scope>(run.scope());
    scope->variables.clear();
    const Interpreter::ScopeGuard guard(run, scope);
    scope->set(loop_name, {loop});
    run.assign(target, loop->items[loop->index]);
    if (run.execute(body) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Flow SetStatement::execute(Interpreter& run) const {
  run.assign(target, run.evaluate(*value));
  return Flow::kNext;
}

Flow SetBlockStatement::execute(Interpreter& run) const {
  Value text = Value::string(run.capture(body, run.scope()));
  if (filter) text = static_cast<const FilterExpression&>(*filter).evaluate_on(run, text);
  run.assign(target, std::move(text));
  return Flow::kNext;
}

Flow MacroStatement::execute(Interpreter& run) const {
  run.scope()->set(name, make_macro(run, signature, body));
  return Flow::kNext;
}

Flow CallStatement::execute(Interpreter& run) const {
  run.print(call->evaluate_with(run, make_macro(run, signature, body)));
  return Flow::kNext;
}

Flow FilterStatement::execute(Interpreter& run) const {
  const Value text = Value::string(run.capture(body, run.scope()));
  run.print(static_cast<const FilterExpression&>(*filter).evaluate_on(run, text));
  return Flow::kNext;
}

Flow WithStatement::execute(Interpreter& run) const {
  std::vector<Value> values;
  for (const auto& [target, value] : variables) values.push_back(run.evaluate(*value));
  const Interpreter::ScopeGuard guard(run, run.heap().make<Scope>(run.scope()));
  for (std::size_t i = 0; i < values.size(); ++i) run.assign(variables[i].first, std::move(values[i]));
  return run.execute(body);
}

Flow GroupStatement::execute(Interpreter& run) const { return run.execute(body); }

}  // namespace strata::chat_template
