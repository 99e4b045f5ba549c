#include "gateway/chat_template/expressions.h"

#include "gateway/chat_template/interpreter.h"

namespace strata::chat_template {

Value NameExpression::evaluate(Interpreter& run) const { return run.variable(name); }

Value SequenceExpression::evaluate(Interpreter& run) const {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(run.evaluate(*item));
  return run.heap().sequence(kind, std::move(values));
}

Value DictExpression::evaluate(Interpreter& run) const {
  auto* dict = run.heap().make<Dict>();
  for (const auto& [key, value] : entries) {
    const Value evaluated = run.evaluate(*key);
    dict->set(evaluated, run.evaluate(*value));
  }
  return {dict};
}

Value BinaryExpression::evaluate(Interpreter& run) const {
  const Value a = run.evaluate(*left);
  return apply_operator(run, op, a, run.evaluate(*right));
}

Value ComparisonExpression::evaluate(Interpreter& run) const {
  Value left = run.evaluate(*first);
  Value result;
  for (const auto& [op, expression] : rest) {
    Value right = run.evaluate(*expression);
    result = apply_operator(run, op, left, right);
    if (!truthy(result)) break;
    left = std::move(right);
  }
  return result;
}

Value ConcatExpression::evaluate(Interpreter& run) const {
  TextBuilder out(run.budget());
  for (const auto& part : parts) {
    const Text text = to_shared_text(run.budget(), run.evaluate(*part));
    out.append(*text);
  }
  return Value::string(out.take());
}

Value SignExpression::evaluate(Interpreter& run) const {
  const Value value = run.evaluate(*operand);
  if (value.is_undefined()) raise("{}", *std::get<Undefined>(value.data).reason);
  if (!value.is_number())
    raise("bad operand type for unary {}: '{}'", negative ? '-' : '+', type_name(value));
  if (negative) return negated(value);
  return value.is_integer() ? Value::integer(value.to_int(), value.origin) : value;
}

Value NotExpression::evaluate(Interpreter& run) const {
  return Value::boolean(!truthy(run.evaluate(*operand)));
}

Value LogicalExpression::evaluate(Interpreter& run) const {
  Value value = run.evaluate(*left);
  return truthy(value) == conjunction ? run.evaluate(*right) : value;
}

Value ConditionalExpression::evaluate(Interpreter& run) const {
  if (truthy(run.evaluate(*test))) return run.evaluate(*then);
  if (otherwise) return run.evaluate(*otherwise);
  return Value::undefined("the inline if-expression was false and has no else");
}

Value AttributeExpression::evaluate(Interpreter& run) const {
  return run.attribute(run.evaluate(*object), name);
}

Value ItemExpression::evaluate(Interpreter& run) const {
  const Value on = run.evaluate(*object);
  return run.item(on, run.evaluate(*key));
}

Value SliceExpression::evaluate(Interpreter& run) const {
  const auto bound = [&](const ExpressionPtr& expression) {
    return expression ? run.evaluate(*expression) : Value::none();
  };
  const Value on = run.evaluate(*object);
  const Value from = bound(begin);
  const Value to = bound(end);
  return slice(run, on, from, to, bound(step));
}

Value CallExpression::evaluate_with(Interpreter& run, std::optional<Value> caller) const {
  const auto prepared = [&] {
    Arguments values = run.evaluate(arguments);
    if (caller) values.named.emplace_back("caller", *caller);
    return values;
  };
  // A method call needs no object for the bound method.
  if (const auto* attribute = dynamic_cast<const AttributeExpression*>(callee.get())) {
    const Value on = run.evaluate(*attribute->object);
    if (const Method method = find_method(on, attribute->name)) {
      const DepthGuard guard(run.budget());
      return method(run, on, prepared());
    }
    const Value function = run.attribute(on, attribute->name);
    return run.call(function, prepared());
  }
  const Value function = run.evaluate(*callee);
  return run.call(function, prepared());
}

Value FilterExpression::evaluate(Interpreter& run) const {
  const Value value = run.evaluate(*input);
  return apply_filter(run, name, value, run.evaluate(arguments));
}

Value FilterExpression::evaluate_on(Interpreter& run, const Value& text) const {
  Value value = text;
  if (const auto* inner = dynamic_cast<const FilterExpression*>(input.get()))
    value = inner->evaluate_on(run, text);
  return apply_filter(run, name, value, run.evaluate(arguments));
}

Value TestExpression::evaluate(Interpreter& run) const {
  const Value value = run.evaluate(*input);
  return Value::boolean(apply_test(run, name, value, run.evaluate(arguments)));
}

}  // namespace strata::chat_template
