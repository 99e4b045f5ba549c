#include <algorithm>
#include <cmath>

#include "gateway/chat_template/expressions.h"
#include "gateway/chat_template/format.h"
#include "gateway/chat_template/interpreter.h"

namespace strata::chat_template {
namespace {

std::string_view spelling_of(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    default:
      return "comparison";
  }
}

[[noreturn]] void raise_operands(Operator op, const Value& left, const Value& right) {
  raise("unsupported operand types for {}: '{}' and '{}'", spelling_of(op), type_name(left),
        type_name(right));
}

[[noreturn]] void raise_too_large() { raise("an integer result is too large"); }

Int power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) raise_too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) raise_too_large();
  }
  return result;
}

Value integer_result(Operator op, Int a, Int b, Origin origin) {
  Int result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0) raise("integer division or modulo by zero");
      if (b == -1) {  // the smallest integer has no positive counterpart
        overflow = op == Operator::kFloorDivide && __builtin_sub_overflow(Int{0}, a, &result);
        break;
      }
      const bool below = a % b != 0 && (a % b < 0) != (b < 0);
      result = op == Operator::kFloorDivide ? a / b - (below ? 1 : 0) : a % b + (below ? b : 0);
      break;
    }
    case Operator::kPower:
      result = power(a, b);
      break;
    default:
      break;
  }
  if (overflow) raise_too_large();
  return Value::integer(result, origin);
}

double floor_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value float_result(Operator op, double a, double b, Origin origin) {
  const bool divides = op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  if (divides && b == 0) raise("division by zero");
  double result = 0;
  switch (op) {
    case Operator::kAdd:
      result = a + b;
      break;
    case Operator::kSubtract:
      result = a - b;
      break;
    case Operator::kMultiply:
      result = a * b;
      break;
    case Operator::kDivide:
      result = a / b;
      break;
    case Operator::kFloorDivide: {
      const double quotient = (a - floor_modulo(a, b)) / b;
      result = std::floor(quotient);
      if (quotient - result > 0.5) result += 1;  // the difference above is a multiple of b up to rounding
      if (result == 0) result = std::copysign(0.0, a / b);
      break;
    }
    case Operator::kModulo:
      result = floor_modulo(a, b);
      break;
    case Operator::kPower:
      if (a == 0 && b < 0) raise("0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b) raise("a negative number cannot be raised to a fraction");
      result = std::pow(a, b);
      break;
    default:
      break;
  }
  return Value::number(result, origin);
}

Value numeric_result(Operator op, const Value& left, const Value& right) {
  const Origin origin = combine(left.origin, right.origin);
  const bool whole = left.is_integer() && right.is_integer() && op != Operator::kDivide;
  if (whole && !(op == Operator::kPower && right.to_int() < 0)) {
    return integer_result(op, left.to_int(), right.to_int(), origin);
  }
  return float_result(op, left.to_double(), right.to_double(), origin);
}

Value join_strings(Interpreter& run, const Value& left, const Value& right) {
  TextBuilder out(run.budget());
  const bool markup = left.markup || right.markup;
  for (const Value* side : {&left, &right}) {
    if (markup && !side->markup) {
      out.append(escape_html(run.budget(), side->text()));
    } else {
      out.append(side->text());
    }
  }
  return Value::string(out.take(), markup);
}

Value join_sequences(Interpreter& run, const Sequence& left, const Sequence& right, Origin origin) {
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return run.heap().sequence(left.kind, std::move(items), origin);
}

Value add(Interpreter& run, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return join_strings(run, left, right);
  const auto* a = left.as<Sequence>();
  const auto* b = right.as<Sequence>();
  if (a != nullptr && b != nullptr && a->kind == b->kind && a->kind != Sequence::Kind::kGenerator) {
    return join_sequences(run, *a, *b, combine(left.origin, right.origin));
  }
  if (left.is_string()) raise("can only concatenate str (not \"{}\") to str", type_name(right));
  raise_operands(Operator::kAdd, left, right);
}

Value repeated(Interpreter& run, const Value& what, const Value& times) {
  const Int wanted = std::clamp<Int>(times.to_int(), 0, INT64_MAX);
  const auto count = static_cast<std::size_t>(wanted);
  if (what.is_string()) return Value::string(repeat(run.budget(), what.text(), count), what.markup);
  const auto* sequence = what.as<Sequence>();
  if (sequence == nullptr || sequence->kind == Sequence::Kind::kGenerator)
    raise_operands(Operator::kMultiply, what, times);
  std::vector<Value> items;
  for (std::size_t i = 0; i < count && !sequence->items.empty(); ++i) {
    run.budget().step(sequence->items.size());
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return run.heap().sequence(sequence->kind, std::move(items), what.origin);
}

Value arithmetic(Interpreter& run, Operator op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (const auto* undefined = std::get_if<Undefined>(&side->data)) raise("{}", *undefined->reason);
  }
  if (left.is_number() && right.is_number()) return numeric_result(op, left, right);
  if (op == Operator::kAdd) return add(run, left, right);
  if (op == Operator::kMultiply && right.is_integer()) return repeated(run, left, right);
  if (op == Operator::kMultiply && left.is_integer()) return repeated(run, right, left);
  if (op == Operator::kModulo && left.is_string())
    return Value::string(format_percent(run, left.text(), right), left.markup);
  raise_operands(op, left, right);
}

// Python's slice: where to begin, how many, and in which steps.
struct SliceRange {
  Int begin = 0;
  Int count = 0;
  Int step = 1;
};

SliceRange slice_range(const Value& begin, const Value& end, const Value& step, std::size_t size) {
  const auto number = [](const Value& value, Int fallback) {
    if (value.is_none()) return fallback;
    if (value.is_undefined()) raise("{}", *std::get<Undefined>(value.data).reason);
    if (!value.is_integer()) raise("slice indices must be integers or None");
    return value.to_int();
  };
  const auto length = static_cast<Int>(size);
  SliceRange range;
  range.step = number(step, 1);
  if (range.step == 0) raise("slice step cannot be zero");
  const bool back = range.step < 0;
  const Int lowest = back ? -1 : 0;
  const Int highest = back ? length - 1 : length;
  const auto clamped = [&](const Value& value, Int fallback) {
    Int at = number(value, fallback);
    if (!value.is_none() && at < 0) at += length;
    return std::clamp(at, lowest, highest);
  };
  range.begin = clamped(begin, back ? highest : lowest);
  const Int stop = clamped(end, back ? lowest : highest);
  const Int distance = back ? range.begin - stop : stop - range.begin;
  const Int stride = back ? -std::max<Int>(range.step, -length - 1) : std::min<Int>(range.step, length + 1);
  range.count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  range.step = back ? -stride : stride;
  return range;
}

MarkedText slice_text(Interpreter& run, const MarkedText& text, const Value& begin, const Value& end,
                      const Value& step) {
  run.budget().walk(text.size());
  const CharacterIndex characters(text.text());
  const SliceRange range = slice_range(begin, end, step, characters.count());
  TextBuilder out(run.budget());
  if (range.count > 0 && range.step == 1) {
    out.append(text, characters.begin(static_cast<std::size_t>(range.begin)),
               characters.begin(static_cast<std::size_t>(range.begin + range.count)));
    return out.take();
  }
  Int at = range.begin;
  for (Int i = 0; i < range.count; ++i, at += range.step) {
    const auto character = static_cast<std::size_t>(at);
    out.append(text, characters.begin(character), characters.begin(character + 1));
  }
  return out.take();
}

}  // namespace

Value apply_operator(Interpreter& run, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
      return Value::boolean(equal(run.budget(), left, right));
    case Operator::kNotEqual:
      return Value::boolean(!equal(run.budget(), left, right));
    case Operator::kLess:
      return Value::boolean(less(run.budget(), left, right));
    case Operator::kGreater:
      return Value::boolean(less(run.budget(), right, left));
    // Not the negation of the opposite: nan is neither above nor below.
    case Operator::kLessEqual:
      return Value::boolean(less(run.budget(), left, right) || equal(run.budget(), left, right));
    case Operator::kGreaterEqual:
      return Value::boolean(less(run.budget(), right, left) || equal(run.budget(), left, right));
    case Operator::kIn:
      return Value::boolean(run.contains(right, left));
    case Operator::kNotIn:
      return Value::boolean(!run.contains(right, left));
    default:
      return arithmetic(run, op, left, right);
  }
}

Value negated(const Value& value) {
  if (!value.is_integer()) return Value::number(-value.to_double(), value.origin);
  Int result = 0;
  if (__builtin_sub_overflow(Int{0}, value.to_int(), &result)) raise_too_large();
  return Value::integer(result, value.origin);
}

Value slice(Interpreter& run, const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (const auto* undefined = std::get_if<Undefined>(&value.data)) raise("{}", *undefined->reason);
  if (value.is_string()) return Value::string(slice_text(run, value.text(), begin, end, step), value.markup);
  const auto* sequence = value.as<Sequence>();
  if (sequence == nullptr || sequence->kind == Sequence::Kind::kGenerator) {
    raise("'{}' object cannot be sliced", type_name(value));
  }
  const SliceRange range = slice_range(begin, end, step, sequence->items.size());
  std::vector<Value> items;
  Int at = range.begin;
  for (Int i = 0; i < range.count; ++i, at += range.step)
    items.push_back(sequence->items[static_cast<std::size_t>(at)]);
  return run.heap().sequence(sequence->kind, std::move(items), value.origin);
}

}  // namespace strata::chat_template
