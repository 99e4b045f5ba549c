#pragma once
// The expressions of the language.

#include "gateway/chat_template/ast.h"

namespace strata::chat_template {

struct ConstantExpression final : Expression {
  ConstantExpression(uint32_t at, Value constant) : Expression(at), value(std::move(constant)) {}
  Value evaluate(Interpreter&) const override { return value; }
  const Value value;
};

struct NameExpression final : Expression {
  NameExpression(uint32_t at, Name variable) : Expression(at), name(variable) {}
  Value evaluate(Interpreter& run) const override;
  const Name name;
};

struct SequenceExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  Sequence::Kind kind = Sequence::Kind::kList;
  std::vector<ExpressionPtr> items;
};

struct DictExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

enum class Operator : unsigned char {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct BinaryExpression final : Expression {
  BinaryExpression(uint32_t at, Operator what, ExpressionPtr a, ExpressionPtr b)
      : Expression(at), op(what), left(std::move(a)), right(std::move(b)) {}
  Value evaluate(Interpreter& run) const override;
  const Operator op;
  const ExpressionPtr left, right;
};

// a < b <= c: each operand is evaluated once, until a comparison fails.
struct ComparisonExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};

struct ConcatExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  std::vector<ExpressionPtr> parts;
};

struct SignExpression final : Expression {
  SignExpression(uint32_t at, bool minus, ExpressionPtr of)
      : Expression(at), negative(minus), operand(std::move(of)) {}
  Value evaluate(Interpreter& run) const override;
  const bool negative;
  const ExpressionPtr operand;
};

struct NotExpression final : Expression {
  NotExpression(uint32_t at, ExpressionPtr of) : Expression(at), operand(std::move(of)) {}
  Value evaluate(Interpreter& run) const override;
  const ExpressionPtr operand;
};

// `and`, `or`: the value of the operand that decides.
struct LogicalExpression final : Expression {
  LogicalExpression(uint32_t at, bool is_and, ExpressionPtr a, ExpressionPtr b)
      : Expression(at), conjunction(is_and), left(std::move(a)), right(std::move(b)) {}
  Value evaluate(Interpreter& run) const override;
  const bool conjunction;
  const ExpressionPtr left, right;
};

struct ConditionalExpression final : Expression {
  ConditionalExpression(uint32_t at, ExpressionPtr condition, ExpressionPtr yes, ExpressionPtr no)
      : Expression(at), test(std::move(condition)), then(std::move(yes)), otherwise(std::move(no)) {}
  Value evaluate(Interpreter& run) const override;
  const ExpressionPtr test, then, otherwise;  // otherwise may be nullptr
};

struct AttributeExpression final : Expression {
  AttributeExpression(uint32_t at, ExpressionPtr of, std::string what)
      : Expression(at), object(std::move(of)), name(std::move(what)) {}
  Value evaluate(Interpreter& run) const override;
  const ExpressionPtr object;
  const std::string name;
};

struct ItemExpression final : Expression {
  ItemExpression(uint32_t at, ExpressionPtr of, ExpressionPtr which)
      : Expression(at), object(std::move(of)), key(std::move(which)) {}
  Value evaluate(Interpreter& run) const override;
  const ExpressionPtr object, key;
};

struct SliceExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  ExpressionPtr object, begin, end, step;  // the last three may be nullptr
};

struct CallExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override { return evaluate_with(run, std::nullopt); }
  // caller: what the body of a call block becomes for the macro.
  Value evaluate_with(Interpreter& run, std::optional<Value> caller) const;
  ExpressionPtr callee;
  CallArguments arguments;
};

struct FilterExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  // text: what the first filter of a chain gets when it has no input of its own (filter and set blocks).
  Value evaluate_on(Interpreter& run, const Value& text) const;
  ExpressionPtr input;  // may be nullptr
  std::string name;
  CallArguments arguments;
};

struct TestExpression final : Expression {
  using Expression::Expression;
  Value evaluate(Interpreter& run) const override;
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

}  // namespace strata::chat_template
