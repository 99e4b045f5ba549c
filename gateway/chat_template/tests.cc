// What may stand behind "is".

#include <unordered_map>

#include "gateway/chat_template/expressions.h"
#include "gateway/chat_template/filter_support.h"

namespace strata::chat_template {
namespace {

using Test = bool (*)(Interpreter& run, const Value& input, Arguments arguments);

template <bool (*kHolds)(const Value&)>
bool unary(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters none("test", std::move(arguments), {});
  return kHolds(input);
}

template <Operator kOperator>
bool compared(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("test", std::move(arguments), {"other"}, 1);
  return truthy(apply_operator(run, kOperator, input, parameters.value(0)));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return std::holds_alternative<bool>(value.data); }
bool is_true(const Value& value) { return is_boolean(value) && value.to_int() == 1; }
bool is_false(const Value& value) { return is_boolean(value) && value.to_int() == 0; }
bool is_integer(const Value& value) { return std::holds_alternative<Int>(value.data); }
bool is_float(const Value& value) { return std::holds_alternative<double>(value.data); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.as<Dict>() != nullptr; }
bool is_escaped(const Value& value) { return value.markup; }
bool is_callable(const Value& value) { return value.as<Callable>() != nullptr || value.is_undefined(); }
// Undefined has the shape of an empty sequence, a mapping that of a sequence.
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.as<Sequence>() != nullptr ||
         value.as<Dict>() != nullptr || value.as<Loop>() != nullptr;
}
bool is_sequence(const Value& value) {
  const auto* sequence = value.as<Sequence>();
  return is_iterable(value) && value.as<Loop>() == nullptr &&
         (sequence == nullptr || sequence->kind != Sequence::Kind::kGenerator);
}

bool leaves_rest(Interpreter& run, const Value& input, Int divisor, Int rest) {
  const Value result = apply_operator(run, Operator::kModulo, input, Value::integer(divisor));
  return equal(run.budget(), result, Value::integer(rest));
}

template <int kRest>
bool has_parity(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("test", std::move(arguments), {});
  return leaves_rest(run, input, 2, kRest);
}

bool is_divisible(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("divisibleby", std::move(arguments), {"num"}, 1);
  return leaves_rest(run, input, static_cast<Int>(parameters.integer_or(0, 1)), 0);
}

template <Case kForm>
bool in_case(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters none("test", std::move(arguments), {});
  const MarkedText text = to_text(run.budget(), input);
  run.budget().walk(text.size());
  return is_in_case(text.text(), kForm);
}

bool is_same(Interpreter& run, const Value& input, Arguments arguments) {
  const Parameters parameters("sameas", std::move(arguments), {"other"}, 1);
  const Value& other = parameters.value(0);
  if (input.data.index() != other.data.index()) return false;
  if (const auto* sequence = input.as<Sequence>()) return sequence == other.as<Sequence>();
  if (const auto* dict = input.as<Dict>()) return dict == other.as<Dict>();
  return equal(run.budget(), input, other);
}

template <bool (*kExists)(std::string_view)>
bool names_existing(Interpreter&, const Value& input, Arguments arguments) {
  const Parameters none("test", std::move(arguments), {});
  return input.is_string() && kExists(input.view());
}

const std::unordered_map<std::string_view, Test>& tests() {
  static const std::unordered_map<std::string_view, Test> table = {
      {"defined", unary<is_defined>},
      {"undefined", unary<is_undefined>},
      {"none", unary<is_none>},
      {"boolean", unary<is_boolean>},
      {"true", unary<is_true>},
      {"false", unary<is_false>},
      {"integer", unary<is_integer>},
      {"float", unary<is_float>},
      {"number", unary<is_number>},
      {"string", unary<is_string>},
      {"mapping", unary<is_mapping>},
      {"iterable", unary<is_iterable>},
      {"sequence", unary<is_sequence>},
      {"callable", unary<is_callable>},
      {"escaped", unary<is_escaped>},
      {"odd", has_parity<1>},
      {"even", has_parity<0>},
      {"divisibleby", is_divisible},
      {"lower", in_case<Case::kLower>},
      {"upper", in_case<Case::kUpper>},
      {"sameas", is_same},
      {"filter", names_existing<filter_exists>},
      {"test", names_existing<test_exists>},
      {"in", compared<Operator::kIn>},
      {"eq", compared<Operator::kEqual>},
      {"equalto", compared<Operator::kEqual>},
      {"==", compared<Operator::kEqual>},
      {"ne", compared<Operator::kNotEqual>},
      {"!=", compared<Operator::kNotEqual>},
      {"lt", compared<Operator::kLess>},
      {"lessthan", compared<Operator::kLess>},
      {"<", compared<Operator::kLess>},
      {"le", compared<Operator::kLessEqual>},
      {"<=", compared<Operator::kLessEqual>},
      {"gt", compared<Operator::kGreater>},
      {"greaterthan", compared<Operator::kGreater>},
      {">", compared<Operator::kGreater>},
      {"ge", compared<Operator::kGreaterEqual>},
      {">=", compared<Operator::kGreaterEqual>},
  };
  return table;
}

}  // namespace

bool test_exists(std::string_view name) { return tests().contains(name); }

bool apply_test(Interpreter& run, const std::string& name, const Value& input, Arguments arguments) {
  const auto at = tests().find(name);
  if (at == tests().end()) raise("no test named '{}'", name);
  run.budget().step();
  return at->second(run, input, std::move(arguments));
}

}  // namespace strata::chat_template
